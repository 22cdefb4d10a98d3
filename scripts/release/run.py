"""One run of the release tool: plan, do, report."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from release import BUILD, DIST, FOREIGN, REPO, ReleaseError
from release.cells import part_of
from release.collect import Finished, collect
from release.conda_steps import CONDA_FORGE, conda_forge_in_reach
from release.host import Host, chosen, obstacle
from release.listing import show_plan, summary
from release.manifest import Manifest, carried, read_or_set_aside, write
from release.pack_steps import package_sources, write_index
from release.paths import INDEX, MANIFEST, REPORT, TEMPORARY, write_atomically
from release.planner import ROOM, Plan, space_needed
from release.processes import MARK, end_leftovers
from release.progress import Reporter
from release.provenance import identity
from release.report import render
from release.schema import Matrix
from release.store import read_stamp
from release.tasks import Outcome, Status, run_tasks

PATIENCE = 3.0  # seconds to wait for the lock of another run


class Release:
    """A run as the command line describes it; `__main__` explains the options."""

    def __init__(
        self,
        selectors: Sequence[str],
        matrix: Matrix,
        host: Host,
        console: Console,
        *,
        channel: str = "auto",
        shard: str | None = None,
        jobs: int = 1,
        verbose: bool = False,
    ) -> None:
        self.selectors, self.matrix, self.host, self.console = selectors, matrix, host, console
        self.shard, self.jobs, self.verbose = shard, jobs, verbose
        wanted = chosen(selectors, matrix, host)
        if shard:
            wanted = part_of(wanted, shard)
        reasons = {cell.name: obstacle(cell, host, matrix) for cell in wanted}
        self.cells = [cell for cell in wanted if reasons[cell.name] is None]
        self.skipped = {name: reason for name, reason in reasons.items() if reason}
        self.channel = base_channel(channel, console)

    def plan(self, **options: Any) -> Plan:
        return Plan(self.matrix, self.host, self.cells, self.channel, **options)

    def show(self) -> None:
        show_plan(self.plan(), self.skipped, self.console)

    def run(self) -> int:
        begun = time.monotonic()
        with only_run(self.console):
            before = identity(package_sources())
            previous = read_or_set_aside(MANIFEST, self._warn)
            kept = carried(previous, before.sources, DIST)
            for cell in self.cells:
                kept.pop(cell.name, None)
            wheels = {name: DIST / str(cell.wheel) for name, cell in kept.items()}
            plan = self.plan(carried=wheels)
            check_space(plan)
            outcomes = self.do(plan)
            change = before.change(identity(package_sources()))
            manifest = collect(
                Finished(plan, outcomes, self.skipped, kept, previous),
                self.host,
                clean=before.clean and not change,
                changed=change and f"during the run, {change}",
                sources=before.sources,
                shard=self.shard,
                seconds=round(time.monotonic() - begun, 1),
            )
            finish(manifest)
            shutil.rmtree(TEMPORARY, ignore_errors=True)
        self.console.print(summary(self.cells, self.skipped, manifest))
        if manifest.fat:
            state = "partial: the report names what it lacks" if manifest.partial else "whole"
            text = f"dist/{manifest.fat.path}; {manifest.fat.size / 1e6:.2f} MB, {state}"
            self.console.print(f"the wheel: {text}", markup=False, soft_wrap=True)
        self.console.print(f"the report: {REPORT}", markup=False, soft_wrap=True)
        if manifest.changed:
            self._warn(f"{manifest.changed}; the files of this run are not valid: build again")
        return self._exit_code(outcomes, manifest)

    def do(self, plan: Plan) -> dict[str, Outcome]:
        tasks = list(plan.tasks.values())
        with Reporter(self.console, tasks, verbose=self.verbose) as reporter:
            return run_tasks(tasks, BUILD, reporter, self.jobs, ROOM)

    def _warn(self, text: str) -> None:
        self.console.print(text, style="yellow", markup=False, soft_wrap=True)

    def _exit_code(self, outcomes: Mapping[str, Outcome], manifest: Manifest) -> int:
        """0 if nothing failed and every cell asked for by name was done in full.

        A pattern or `all` may include cells that this machine cannot build.
        """
        failed = any(outcome.status is Status.FAILED for outcome in outcomes.values())
        if failed or manifest.changed:
            return 1
        states = {cell.name: manifest.cells[cell.name].state for cell in self.cells}
        incomplete = {name for name, state in states.items() if state != "done"} | {*self.skipped}
        named = [s for s in self.selectors if "*" not in s and s != "all"]
        if named and incomplete & {cell.name for cell in chosen(named, self.matrix, self.host)}:
            return 1
        return 0 if self.cells or self.shard else 1


def finish(manifest: Manifest) -> None:
    write_index(INDEX)
    write(manifest, MANIFEST)
    write_atomically(REPORT, render(manifest, DIST))


def base_channel(channel: str, console: Console) -> str | None:
    """The URL of the base channel, or None for the bootstrap channel."""
    # Programs in conda-forge's packages for another platform do not start on this machine.
    if channel == "bootstrap" or (FOREIGN and channel == "auto"):
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
    """Refuses a run that would fill the disk; a run with most outputs made needs little space."""
    free = shutil.disk_usage(BUILD).free
    have = sum(1 for name in plan.tasks if read_stamp(BUILD, name))
    need = int(space_needed(plan) * (1 - have / max(1, len(plan.tasks)))) + 200_000_000
    if free < need:
        text = f"{BUILD}: {free / 1e9:.1f} GB are free, about {need / 1e9:.1f} GB are needed"
        raise ReleaseError(f"{text}; free some space, or clone onto a larger disk")


@contextmanager
def only_run(console: Console) -> Iterator[None]:
    """Allows one run at a time in a checkout; the lock ends with the process, even a killed one."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as file:
        # If a run was killed while it started a command, that command still holds the lock briefly.
        end, taken = time.monotonic() + PATIENCE, False
        while not taken:
            try:
                taken = fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB) is None
            except OSError:
                if time.monotonic() > end:
                    text = f"another run is going on in {REPO}; wait for it, or use another clone"
                    raise ReleaseError(text) from None
                time.sleep(0.05)
        end_leftovers(BUILD, lambda text: console.print(text, markup=False, soft_wrap=True))
        os.environ[MARK] = str(BUILD)  # every process that is started from now on inherits it
        try:
            yield
        finally:
            os.environ.pop(MARK, None)
