"""A run of the release tool, and the merge of the results of shards."""

import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from . import BUILD, DIST, FOREIGN, REPO, ReleaseError
from .cells import all_cells, part_of, required
from .collect import Finished, artefacts, collect, missing
from .conda_steps import CONDA_FORGE, conda_forge_in_reach, index_package
from .host import Host, chosen, obstacle
from .listing import Reporter, show_plan, summary
from .manifest import Manifest, carried, of_binaries, of_shards, read_or_set_aside, write
from .pack_steps import make_fat_wheel, package_sources, write_index
from .paths import CHANNEL, INDEX, LOGS, MANIFEST, REPORT, TEMPORARY, publish, replace_wheel
from .planner import ROOM, Plan
from .processes import MARK, end_leftovers
from .schema import Matrix
from .shell import Log
from .store import identity
from .tasks import Outcome, Status, run_tasks
from .wheels import read_wheel

PATIENCE = 3.0  # seconds to wait for the lock of another run
RANK = {"done": 0, "partial": 1, "failed": 2, "skipped": 3}


@dataclass
class Release:
    """A run with the options of the command line, which `__main__` explains."""

    selectors: Sequence[str]
    matrix: Matrix
    host: Host
    console: Console
    channel: str | None = "auto"
    shard: str | None = None
    jobs: int = 1
    verbose: bool = False

    def __post_init__(self) -> None:
        host, matrix = self.host, self.matrix
        wanted = chosen(self.selectors, matrix, host)
        if self.shard:
            wanted = part_of(wanted, self.shard)
        reasons = {cell.name: obstacle(cell, host, matrix) for cell in wanted}
        self.cells = [cell for cell in wanted if reasons[cell.name] is None]
        self.skipped = {name: reason for name, reason in reasons.items() if reason}
        self.channel = base_channel(str(self.channel), self.console)

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
            plan = self.plan(carried={name: DIST / str(cell.wheel) for name, cell in kept.items()})
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
            write_index(INDEX)
            write(manifest, MANIFEST)
            shutil.rmtree(TEMPORARY, ignore_errors=True)
        self.console.print(summary(self.cells, self.skipped, manifest))
        if manifest.fat:
            state = "partial: the report names the missing cells" if manifest.partial else "whole"
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
        """0 if nothing failed, the checkout did not change and every named cell is done, else 1.

        Cells that only `all` or a pattern with `*` selects need not be done. A run without cells
        returns 1 unless it is a shard.
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


def base_channel(channel: str, console: Console) -> str | None:
    """The URL of the base channel, or None for the bootstrap channel."""
    # A run for another platform cannot start conda-forge's programs, so `auto` means bootstrap.
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


@contextmanager
def only_run(console: Console) -> Iterator[None]:
    """Locks BUILD until the block or the process ends; kills processes that earlier runs left."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as file:
        # A command that a killed run was just starting may hold the lock a moment longer.
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
        os.environ[MARK] = str(BUILD)  # for every process that this run starts
        try:
            yield
        finally:
            os.environ.pop(MARK, None)


def merge(folders: Sequence[Path], matrix: Matrix, console: Console) -> int:
    """Joins the `dist` folders of shards into DIST; returns 1 if a cell has failed, else 0."""
    shards = of_shards(folders)
    every, order = [*shards.values()], [cell.name for cell in all_cells(matrix)]
    # Maps each cell to the folder of the shard in which the state of the cell is best by RANK.
    origin: dict[str, Path] = {}
    for name in order:
        if having := [folder for folder, found in shards.items() if name in found.cells]:
            origin[name] = min(having, key=lambda f: RANK[shards[f].cells[name].state])
    cells = {name: shards[folder].cells[name] for name, folder in origin.items()}
    with only_run(console):
        packed = {name: cell.wheel for name, cell in cells.items() if cell.packed}
        wheels = {name: origin[name] / str(wheel) for name, wheel in packed.items()}
        if not wheels:
            raise ReleaseError("no shard built a variant to merge; the shards' logs say why")
        with Log(LOGS / "merge.log") as log:
            fat = make_fat_wheel(log, wheels, required(matrix))
            binaries = of_binaries(read_wheel(fat).binaries, every)
            for folder, found in shards.items():
                _publish(folder, found, {n for n in cells if origin[n] == folder}, log)
            final = replace_wheel(fat, DIST, any_version=True)
        sdists = {DIST / a.path for m in every for a in m.artefacts if a.kind == "sdist"}
        channels = {found.base_channel for found in every}
        joined = {
            "clean": all(found.clean for found in every),
            "base_channel": None if None in channels else ", ".join(sorted(map(str, channels))),
            "shard": None,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": max(found.seconds for found in every),
            "missing": missing(order, cells),
            "cells": cells,
            "binaries": binaries,
            "artefacts": artefacts(cells, sorted(sdists), [final]),
            "hosts": {name: host for found in every for name, host in found.hosts.items()},
        }
        made = every[0].model_copy(update=joined)
        write_index(INDEX)
        write(made, MANIFEST)
    bad = [name for name, cell in cells.items() if cell.state == "failed"]
    for name in bad:
        console.print(f"FAILED {name}: {cells[name].reason}", markup=False, soft_wrap=True)
    text = f"merged {len(cells)} cells of {len(shards)} folders into dist/{final.name}{made.lacks}"
    console.print(text, markup=False, soft_wrap=True)
    return 1 if bad else 0


def _publish(folder: Path, found: Manifest, cells: Collection[str], log: Log) -> None:
    """Copies the source distribution, and the artefacts and logs of `cells`, from a shard."""
    names = [a.path for a in found.artefacts if a.kind != "fat" and cells >= {*a.cells}]
    names += [cell.log for name, cell in found.cells.items() if cell.log and name in cells]
    for path in (folder / name for name in names):
        if path.suffix == ".conda":
            index_package(log, path, CHANNEL)
        elif path.is_file():
            publish(path, DIST / path.relative_to(folder))
