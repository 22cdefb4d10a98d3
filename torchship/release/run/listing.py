"""Shows cells and tasks before, during and after a run, to people and to programs."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..matrix.cells import Cell
from ..matrix.schema import Tool
from ..matrix.settings import Settings
from ..plan.host import host_cell, obstacle
from ..plan.machine import Host
from ..plan.plan import Plan
from ..steps.compile.objects import CompileStep
from ..steps.compile.toolchains import toolchain_of
from .manifest import CellEntry, Manifest
from .shell import TAIL
from .tasks import AnyTask, Outcome, Status, unchanged

STYLES = {"done": "green", "unchanged": "cyan", "FAILED": "bold red", "failed": "bold red"}
LINES = 4  # the most lines of a cell's reason in the table


@dataclass(frozen=True)
class CellFacts:
    """What `--list` says of a cell; `--list --json` prints these fields."""

    cell: str
    glue: str
    kernels: list[str]
    device: str
    torch: str
    pythons: list[str]
    cxx: int
    abi: int
    optional: bool
    needs_cuda_torch: bool
    buildable: bool
    reason: str | None
    toolchain: str | None
    fits_host: bool


def list_cells(cells: Sequence[Cell], host: Host, settings: Settings, console: Console) -> None:
    how = f"native, {host.compiler or 'no compiler'}"
    if settings.is_foreign:
        how = f"cross, {host.compiler or 'no compiler'}, run by {host.emulator or 'nothing'}"
    title = f"cells of build_matrix.yaml for {settings.platform} ({how})"
    tools = ", ".join(tool.name for tool in settings.matrix.tools)
    table = Table(title=title, caption=f"and for every platform: {tools}" if tools else None)
    for name in ("cell", "torch", "C++", "ABI", "kernels", "here"):
        table.add_column(name, no_wrap=True)
    notes: dict[str, list[str]] = {}
    for cell in cells:
        facts = cell_facts(cell, host, settings)
        name = facts.cell
        name += " (host)" if facts.fits_host else ""
        name += " (optional)" if facts.optional else ""
        verdict = "yes" if facts.buildable else "no"
        if facts.toolchain or facts.reason:
            note = f"yes, by {facts.toolchain}" if facts.buildable else f"no: {facts.reason}"
            notes.setdefault(note, []).append(facts.cell)
        table.add_row(
            name,
            facts.torch,
            str(facts.cxx),
            str(facts.abi),
            ", ".join(facts.kernels),
            verdict,
        )
    console.print(table)
    # Below the table, since several cells share a long reason.
    for note, names in notes.items():
        console.print(", ".join(names), highlight=False)
        console.print(Padding(Text(note), (0, 0, 0, 2)))


def cell_facts(cell: Cell, host: Host, settings: Settings) -> CellFacts:
    reason = obstacle(cell, host, settings)
    choice = None if reason else toolchain_of(str(cell.variant.kernels), host, settings.matrix)
    return CellFacts(
        cell=cell.name,
        glue=cell.glue,
        kernels=list(cell.kernels),
        device=cell.device,
        torch=cell.torch.release,
        pythons=list(cell.torch.pythons),
        cxx=cell.cxx,
        abi=cell.cxx11_abi,
        optional=cell.optional,
        needs_cuda_torch=cell.needs_cuda_torch,
        buildable=reason is None,
        reason=reason,
        toolchain=str(choice) if choice else None,
        fits_host=not settings.is_foreign and cell.name == host_cell(host, settings).name,
    )


def json_list(cells: Sequence[Cell], host: Host, settings: Settings) -> str:
    listing = {
        "compiler": str(host.compiler) if host.compiler else None,
        "python": host.python_minor,
        "tools": [tool.name for tool in settings.matrix.tools],
        "cells": [asdict(cell_facts(cell, host, settings)) for cell in cells],
    }
    return json.dumps(listing, indent=1)


def github(cells: Sequence[Cell], host: Host, settings: Settings) -> str:
    """The cells that this machine can build, as the `matrix:` of a GitHub workflow, in one line."""
    facts = [cell_facts(cell, host, settings) for cell in cells]
    include = [
        {"cell": cell.cell, "glue": cell.glue, "device": cell.device, "torch": cell.torch}
        for cell in facts
        if cell.buildable
    ]
    return json.dumps({"include": include})


def show_plan(plan: Plan, skipped: Mapping[str, str], console: Console) -> None:
    """Shows the tasks in order, and how many binaries are compiled with and without sharing."""
    done = unchanged(list(plan.tasks.values()), plan.settings)
    for task in plan.tasks.values():
        state = Status.UNCHANGED.value if task.name in done else "to make"
        use = f"for {', '.join(task.cells) or 'all of them'}"
        console.print(f"{task.name:44} {state:12} {use}", markup=False)
    for name, reason in plan.absent.items():
        console.print(f"{name:44} {'not planned':12} {reason}", markup=False, soft_wrap=True)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False)
    compiled = [task for task in plan.tasks.values() if isinstance(task, CompileStep)]
    without_sharing = sum(len(task.cells) for task in compiled)
    console.print(
        f"{len(plan.cells)} cells, {len(plan.tools)} tools, {len(plan.tasks)} tasks; "
        f"{len(compiled)} binaries are compiled (without sharing: {without_sharing})"
    )


class Reporter(AbstractContextManager["Reporter"]):
    """Prints lines for every task.

    On a terminal, also shows a progress bar during the run.
    """

    def __init__(
        self, console: Console, tasks: Sequence[AnyTask], *, verbose: bool = False
    ) -> None:
        self.console = console
        self.verbose = verbose
        self._running: list[str] = []
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=len(tasks))
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, task: AnyTask) -> None:
        self._running.append(task.name)
        self._bar.update(self._task, description=", ".join(self._running))
        if not self.console.is_terminal:
            self.console.print(f"           {task.name} ...", highlight=False, soft_wrap=True)

    def finished(self, task: AnyTask, outcome: Outcome) -> None:
        if task.name in self._running:
            self._running.remove(task.name)
        self._bar.update(self._task, description=", ".join(self._running) or "waiting", advance=1)
        style = STYLES.get(outcome.status.value, "yellow")
        progress = self._bar.tasks[0]
        count = rf"\[{progress.completed:>3}/{progress.total}]"
        is_timed = outcome.seconds >= 0.05 and outcome.status is not Status.UNCHANGED
        seconds = f"{outcome.seconds:6.1f} s" if is_timed else " " * 8
        state = f"[{style}]{outcome.status.value:9}[/]"
        more = "".join(escape(f"\n           {line}") for line in self._details(outcome))
        # One call prints all lines, so that lines of other threads do not come between them.
        line = f"{count}  {state} {seconds}  {escape(outcome.task)}{more}"
        self.console.print(line, highlight=False, soft_wrap=True)

    def _details(self, outcome: Outcome) -> list[str]:
        """The reason of an outcome, and the log of a failed task or its end."""
        lines = [outcome.reason] if outcome.reason else []
        if outcome.status is Status.FAILED and outcome.log and outcome.log.exists():
            log = outcome.log.read_text(encoding="utf-8", errors="replace").splitlines()
            lines += [f"| {line}" for line in (log if self.verbose else log[-TAIL:])]
            lines.append(f"the whole log: {outcome.log}")
        return lines


def summary(
    cells: Sequence[Cell], tools: Sequence[Tool], skipped: Mapping[str, str], manifest: Manifest
) -> Table:
    """A row for each cell and tool: the state, the time, the artefacts, and why something was not
    done.
    """
    table = Table(
        title=f"{manifest.package} release",
        title_justify="left",
        caption="seconds: of all steps, which run side by side",
    )
    for name in ("cell", "state", "seconds", "artifacts, or the reason"):
        table.add_column(name, overflow="fold", no_wrap=name == "cell")
    for cell in cells:
        entry = manifest.cells[cell.name]
        state = f"[{STYLES.get(entry.state, 'yellow')}]{entry.state}[/]"
        files = [artefact.path.rpartition("/")[2] for artefact in manifest.of_cell(cell.name)]
        lines = dict.fromkeys([*files, *_summary_lines(entry)])
        details = "\n".join(map(escape, lines))
        table.add_row(cell.name, state, f"{sum(entry.steps.values()):.1f}", details)
    for tool in tools:
        made = manifest.tools[tool.name]
        state = f"[{STYLES.get(made.state, 'yellow')}]{made.state}[/]"
        names = [path.rpartition("/")[2] for path in made.files]
        details = "\n".join(map(escape, [*names, *_first_lines(made.reason)]))
        table.add_row(tool.name, state, f"{sum(made.steps.values()):.1f}", details)
    for name, reason in skipped.items():
        table.add_row(name, "[yellow]skipped[/]", "", escape(reason))
    return table


def _summary_lines(entry: CellEntry) -> list[str]:
    """The begin of a cell's reason, and what its runs say."""
    lines = _first_lines(entry.reason)
    for run in entry.runs:
        if not run.ran and run.why_not and entry.state != "failed":
            lines.append(f"{run.kind}: {run.why_not}")
    for run in entry.runs:
        if run.ran and run.facts.get("pytorch"):
            lines.append(f"conda: installed and run beside {run.facts['pytorch']}")
    return lines


def _first_lines(reason: str) -> list[str]:
    """The begin of a reason."""
    lines = [line for line in reason.splitlines() if line]
    return lines[:LINES] + ["... (its log has the rest)"] * (len(lines) > LINES)
