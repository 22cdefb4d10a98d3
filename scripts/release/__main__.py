"""The command line of the release tool; scripts/build_all.sh starts it."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from release import BUILD, REPO, ReleaseError
from release.cells import Cell, all_cells, select
from release.conda_steps import CONDA_FORGE, conda_forge_in_reach
from release.generated import check_or_write
from release.host import Host, host_cell, obstacle, probe
from release.listing import list_cells, show_plan
from release.matrix import load
from release.paths import INDEX, LOGS, STAMPS, TEMPORARY
from release.planner import Options, Plan, make_plan, space_needed
from release.progress import Reporter, cell_state, summary
from release.schema import Matrix
from release.simple_index import write_index
from release.store import Store
from release.tasks import Status, run_tasks

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)


@app.command()
def main(
    selectors: Annotated[
        list[str] | None,
        typer.Argument(help="Cells or patterns: host, stable210-cpu, 'aten*-cu12'; none: all."),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Show every cell and stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    channel: Annotated[
        str, typer.Option(help="Base channel: auto, bootstrap, conda-forge or a URL.")
    ] = "auto",
    jobs: Annotated[int, typer.Option(help="Compilers at a time (0: one a core).")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Whole logs of failures.")] = False,
    write_generated: Annotated[
        bool, typer.Option("--write-generated", help="Write what the matrix generates, and stop.")
    ] = False,
) -> None:
    """Build, audit, pack, install and run the cells of build_matrix.yaml."""
    try:
        matrix = load()
        if write_generated:
            check_or_write(matrix, console, write=True)
            return
        check_or_write(matrix, console, write=False)
        host = probe(os.environ.get("LLTM_RELEASE_PYTHON", sys.executable))
        if list_only:
            list_cells(all_cells(matrix), host, matrix, console)
            return
        code = run(selectors or [], matrix, host, channel, jobs, verbose, dry_run)
    except ReleaseError as error:
        console.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def run(
    selectors: list[str],
    matrix: Matrix,
    host: Host,
    channel: str,
    jobs: int,
    verbose: bool,
    dry_run: bool,
) -> int:
    """Plans and runs the selected cells; the exit code."""
    wanted = chosen(selectors, matrix, host)
    reasons = {cell.name: obstacle(cell, host, matrix) for cell in wanted}
    cells = [cell for cell in wanted if reasons[cell.name] is None]
    skipped = {name: reason for name, reason in reasons.items() if reason}
    jobs = jobs or os.cpu_count() or 1
    plan = make_plan(cells, matrix, host, Options(base_channel(channel), jobs))
    if dry_run:
        show_plan(plan, cells, skipped, console)
        return 0
    with only_run():
        check_space(plan)
        tasks = list(plan.tasks.values())
        with Reporter(console, len(tasks), verbose) as reporter:
            outcomes = run_tasks(tasks, Store(STAMPS), LOGS, reporter, jobs=jobs)
        write_index(INDEX)
        shutil.rmtree(TEMPORARY, ignore_errors=True)
    names = [cell.name for cell in cells]
    console.print(summary(names, tasks, outcomes, skipped))
    states = {name: cell_state(name, tasks, outcomes) for name in names}
    # What was asked for by name must be done in full; a pattern, or every cell, may meet what
    # this machine cannot do.
    incomplete = {name for name, state in states.items() if state is Status.SKIPPED} | {*skipped}
    named = [selector for selector in selectors if "*" not in selector]
    by_name = {cell.name for cell in chosen(named, matrix, host)} if named else set()
    failed = Status.FAILED in states.values() or incomplete & by_name
    return 1 if failed or not names else 0


def chosen(selectors: list[str], matrix: Matrix, host: Host) -> list[Cell]:
    """The selected cells; `host` becomes the one that fits this machine."""
    names = [str(host_cell(matrix, host).name) if s == "host" else s for s in selectors]
    return select(all_cells(matrix), names)


def base_channel(channel: str) -> str | None:
    """The URL of the base channel, or None for the bootstrap channel."""
    if channel == "bootstrap":
        return None
    if channel in ("auto", "conda-forge"):
        if conda_forge_in_reach():
            return CONDA_FORGE
        if channel == "conda-forge":
            text = f"conda-forge ({CONDA_FORGE}) is not in reach"
            raise ReleaseError(f"{text}; check the network, or use --channel bootstrap")
        console.print(
            "conda-forge is not in reach: the base packages come from a bootstrap channel made of "
            "PyPI's wheels and this host's Python (for tests only, never for publishing)."
        )
        return None
    return channel


def check_space(plan: Plan) -> None:
    """Stops before the disk is full; a run that built most of it already needs little."""
    free = shutil.disk_usage(BUILD).free
    need = space_needed(plan)
    have = sum(1 for name in plan.tasks if Store(STAMPS).read(name))
    need = int(need * (1 - have / max(1, len(plan.tasks)))) + 200_000_000
    if free < need:
        text = f"{BUILD}: {free / 1e9:.1f} GB are free, about {need / 1e9:.1f} GB are needed"
        raise ReleaseError(f"{text}; free some space, or clone onto a larger disk")


@contextmanager
def only_run() -> Iterator[None]:
    """One run at a time in a checkout; the lock goes with the process, however it ends."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = f"another run is going on in {REPO}; wait for it, or use another clone"
            raise ReleaseError(text) from None
        yield


if __name__ == "__main__":
    app()
