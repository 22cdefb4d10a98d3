"""A run for one platform: plans the cells, does the tasks, writes the manifest."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console

from .. import ReleaseError
from ..matrix.cells import part_of
from ..matrix.settings import Settings
from ..plan.host import chosen_cells, obstacle
from ..plan.machine import Host
from ..plan.plan import Plan
from ..plan.planner import fill
from ..steps.compile.environments import ROOM
from ..steps.conda.packages import CONDA_FORGE, conda_forge_in_reach
from ..steps.pack.distributions import write_index
from ..steps.pack.sources import package_sources
from ..steps.tools.tools import chosen_tools
from .collect import Finished, collect
from .listing import Reporter, show_plan, summary
from .manifest import Manifest, carried, carried_tools, read_or_set_aside, write
from .processes import MARK, end_leftovers
from .store import identity, relative
from .tasks import Outcome, Status, run_tasks

PATIENCE = 3.0  # seconds to wait for the lock of another run


@dataclass
class Release:
    """A run with the options of the command line, which `options.Build` explains."""

    selectors: Sequence[str]
    settings: Settings
    host: Host
    console: Console
    channel: str = "auto"
    shard: str | None = None
    jobs: int = 1
    verbose: bool = False

    def __post_init__(self) -> None:
        self.tools = chosen_tools(self.selectors, self.shard, self.settings)
        cells = chosen_cells(self.selectors, self.host, self.settings)
        if self.shard is not None:
            cells = part_of(cells, self.shard)
        reasons = {cell.name: obstacle(cell, self.host, self.settings) for cell in cells}
        self.cells = [cell for cell in cells if reasons[cell.name] is None]
        self.skipped = {name: reason for name, reason in reasons.items() if reason}
        self.base_channel = base_channel(self.channel, self.console, self.settings)

    def plan(self, carried: Mapping[str, Path] | None = None, *, pack: bool = True) -> Plan:
        return fill(
            Plan(
                settings=self.settings,
                host=self.host,
                cells=self.cells,
                channel=self.base_channel,
                carried=carried or {},
                pack=pack,
                tools=self.tools,
            )
        )

    def show(self) -> None:
        show_plan(self.plan(), self.skipped, self.console)

    def run(self) -> int:
        self._say_what_cannot_be_built()
        with only_run(self.settings, self.console):
            manifest, outcomes = self._build()
            shutil.rmtree(self.settings.temporary, ignore_errors=True)
        self._report(manifest)
        return self._exit_code(outcomes, manifest)

    def _say_what_cannot_be_built(self) -> None:
        """Names the cells that this machine cannot build, before anything is done.

        Raises ReleaseError if these are all cells that a selector names: such a run would fail
        after all that the tools take.
        """
        if not self.skipped:
            return
        reasons: dict[str, list[str]] = {}
        for name, reason in self.skipped.items():
            reasons.setdefault(reason, []).append(name)
        lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
        if not self.cells and named_cells(self.selectors, self.host, self.settings):
            raise ReleaseError(
                "nothing was started, since it cannot be built here\n" + "\n".join(lines)
            )
        for line in lines:
            self._warn(f"cannot be built here: {line}")

    def _build(self) -> tuple[Manifest, dict[str, Outcome]]:
        """Does the tasks, and writes the index and the manifest with what they made."""
        begin = time.monotonic()
        settings = self.settings
        before = identity(package_sources(settings.repo), settings)
        previous = read_or_set_aside(settings.manifest, self._warn)
        kept = carried(previous, before.sources, settings.dist)
        kept_tools = carried_tools(previous, before.sources, settings.dist)
        for cell in self.cells:
            kept.pop(cell.name, None)
        for tool in self.tools:
            kept_tools.pop(tool.name, None)
        plan = self.plan({name: settings.dist / str(cell.wheel) for name, cell in kept.items()})
        outcomes = self.do(plan)
        change = before.change(identity(package_sources(settings.repo), settings))
        finished = Finished(
            plan=plan,
            outcomes=outcomes,
            skipped=self.skipped,
            kept=kept,
            kept_tools=kept_tools,
            previous=previous,
            clean=before.clean and not change,
            changed=f"during the run, {change}" if change else "",
            sources=before.sources,
            shard=self.shard,
            seconds=round(time.monotonic() - begin, 1),
        )
        manifest = collect(finished)
        write_index(settings.index)
        write(manifest, settings.manifest)
        return manifest, outcomes

    def do(self, plan: Plan) -> dict[str, Outcome]:
        tasks = list(plan.tasks.values())
        with Reporter(self.console, tasks, verbose=self.verbose) as reporter:
            return run_tasks(
                tasks,
                self.settings.build,
                reporter,
                settings=self.settings,
                jobs=self.jobs,
                room=ROOM,
            )

    def _report(self, manifest: Manifest) -> None:
        self.console.print(summary(self.cells, self.tools, self.skipped, manifest))
        if manifest.fat:
            path = relative(self.settings.dist / manifest.fat.path, self.settings.repo)
            state = "partial: the report names the missing cells" if manifest.partial else "whole"
            megabytes = manifest.fat.size / 1e6
            self._tell(f"the wheel: {path}; {megabytes:.2f} MB, {state}")
        self._tell(f"the report: {self.settings.dist / 'report.html'}")
        if manifest.changed:
            self._warn(f"{manifest.changed}; the files of this run are not valid: build again")

    def _tell(self, message: str) -> None:
        self.console.print(message, markup=False, soft_wrap=True)

    def _warn(self, message: str) -> None:
        self.console.print(message, style="yellow", markup=False, soft_wrap=True)

    def _exit_code(self, outcomes: Mapping[str, Outcome], manifest: Manifest) -> int:
        """0 if nothing failed, the checkout did not change, and every tool and every named cell is
        done, else 1.

        A run without cells and tools returns 1 unless it is a shard.
        """
        failed = any(outcome.status is Status.FAILED for outcome in outcomes.values())
        if failed or manifest.changed:
            return 1
        names = [cell.name for cell in self.cells]
        incomplete = {name for name in names if manifest.cells[name].state != "done"}
        incomplete |= {*self.skipped}
        if incomplete & named_cells(self.selectors, self.host, self.settings):
            return 1
        if any(manifest.tools[tool.name].state != "done" for tool in self.tools):
            return 1
        return 0 if self.cells or self.tools or self.shard else 1


def named_cells(selectors: Sequence[str], host: Host, settings: Settings) -> set[str]:
    """The cells that a run must do in full: those that a selector names.

    `all` and a pattern with `*` name no cell, `newest` and `oldest` none that is optional: those
    take a torch that PyPI lacks.
    """
    names = [name for name in selectors if "*" not in name and name != "all"]
    if not names:
        return set()
    return {
        cell.name
        for cell in chosen_cells(names, host, settings)
        if not cell.optional or {*cell.names} & {*names}
    }


def base_channel(channel: str, console: Console, settings: Settings) -> str | None:
    """The URL of the base channel, or None for the bootstrap channel."""
    # A run for another platform cannot start conda-forge's programs, so `auto` means
    # bootstrap.
    if channel == "bootstrap" or (settings.is_foreign and channel == "auto"):
        return None
    if channel not in ("auto", "conda-forge"):
        return channel
    if conda_forge_in_reach():
        return CONDA_FORGE
    if channel == "conda-forge":
        raise ReleaseError(
            f"conda-forge ({CONDA_FORGE}) is not in reach; check the network, or use "
            "--channel bootstrap"
        )
    console.print(
        "conda-forge is not in reach: the base packages come from a bootstrap channel made of "
        "PyPI's wheels and this host's Python (for tests only, never for publishing)."
    )
    return None


@contextmanager
def only_run(settings: Settings, console: Console) -> Iterator[None]:
    """Locks the build folder until the block or the process ends.

    Kills the processes that earlier runs left.
    """
    build = settings.build
    build.mkdir(parents=True, exist_ok=True)
    with (build / "lock").open("w") as file:
        _lock(file, settings.repo)
        end_leftovers(build, lambda message: console.print(message, markup=False, soft_wrap=True))
        os.environ[MARK] = str(build)  # for every process that this run starts
        try:
            yield
        finally:
            os.environ.pop(MARK, None)


def _lock(file: IO[str], repo: Path) -> None:
    """Takes the lock; raises ReleaseError if another run has it for longer than PATIENCE."""
    # A command that a killed run was just starting may hold the lock a moment longer.
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() > end:
                raise ReleaseError(
                    f"another run is going on in {repo}; wait for it, or use another clone"
                ) from None
            time.sleep(0.05)
