"""Shows cells and tasks before, during and after a run, to people and to programs."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import BUILD, FOREIGN, PLATFORM, PROJECT
from .cells import Cell
from .host import Host, host_cell, obstacle, toolchain
from .manifest import Manifest
from .planner import Plan
from .schema import Matrix
from .shell import TAIL
from .store import read_stamp
from .tasks import Outcome, Status, Task

STYLES = {"done": "green", "unchanged": "cyan", "FAILED": "bold red", "failed": "bold red"}
LINES = 4  # the most lines of a cell's reason in the table


def list_cells(cells: Sequence[Cell], host: Host, matrix: Matrix, console: Console) -> None:
    how = f"native, {host.compiler or 'no compiler'}"
    if FOREIGN:
        how = f"cross, {host.compiler or 'no compiler'}, run by {host.emulator or 'nothing'}"
    table = Table(title=f"cells of build_matrix.yaml for {PLATFORM} ({how})")
    for name in ("cell", "torch", "C++", "ABI", "kernels", "buildable here"):
        table.add_column(name, no_wrap=name != "buildable here", overflow="fold")
    for facts in map(partial(cell_facts, host=host, matrix=matrix), cells):
        name = f"{facts['cell']} (host)" if facts["fits_host"] else facts["cell"]
        name += " (optional)" if facts["optional"] else ""
        using = f"yes, {facts['toolchain']}" if facts["toolchain"] else "yes"
        verdict = using if facts["buildable"] else f"no: {facts['reason']}"
        kernels = ", ".join(facts["kernels"])
        table.add_row(name, facts["torch"], str(facts["cxx"]), str(facts["abi"]), kernels, verdict)
    console.print(table)


def cell_facts(cell: Cell, *, host: Host, matrix: Matrix) -> dict[str, Any]:
    reason = obstacle(cell, host, matrix)
    compiled_by = None if reason else toolchain(str(cell.variant.kernels), host, matrix)
    return {
        "cell": cell.name,
        "glue": cell.glue,
        "kernels": list(cell.kernels),
        "device": cell.device,
        "torch": cell.torch.release,
        "pythons": list(cell.torch.pythons),
        "cxx": cell.torch.cxx,
        "abi": cell.cxx11_abi,
        "optional": cell.optional,
        "buildable": reason is None,
        "reason": reason,
        "toolchain": str(compiled_by) if compiled_by else None,
        "fits_host": not FOREIGN and cell.name == host_cell(matrix, host).name,
    }


def json_list(cells: Sequence[Cell], host: Host, matrix: Matrix) -> str:
    facts = [cell_facts(cell, host=host, matrix=matrix) for cell in cells]
    compiler = str(host.compiler) if host.compiler else None
    return json.dumps({"compiler": compiler, "python": host.python_minor, "cells": facts}, indent=1)


def github(cells: Sequence[Cell], host: Host, matrix: Matrix) -> str:
    """The cells that this machine can build, as the `matrix:` of a GitHub workflow, in one line."""
    wanted = ("cell", "glue", "device", "torch")
    facts = [cell_facts(cell, host=host, matrix=matrix) for cell in cells]
    include = [{name: cell[name] for name in wanted} for cell in facts if cell["buildable"]]
    return json.dumps({"include": include})


def show_plan(plan: Plan, skipped: Mapping[str, str], console: Console) -> None:
    """Shows the tasks in order, and how many binaries are compiled with and without sharing."""
    for task in plan.tasks.values():
        state = "made before" if read_stamp(BUILD, task.name) else "to make"
        console.print(f"{task.name:44} {state:12} for {', '.join(task.cells)}", markup=False)
    for name, reason in skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False)
    compiled = [t for t in plan.tasks.values() if t.name.startswith(("glue/", "kernels/"))]
    console.print(
        f"{len(plan.cells)} cells, {len(plan.tasks)} tasks; {len(compiled)} binaries are compiled "
        f"(without sharing: {sum(len(task.cells) for task in compiled)})"
    )


class Reporter(AbstractContextManager["Reporter"]):
    """Prints lines for every task; on a terminal, also shows a progress bar during the run."""

    def __init__(self, console: Console, tasks: Sequence[Task], *, verbose: bool = False) -> None:
        self.console, self.verbose = console, verbose
        self._running: list[str] = []
        names, quiet = TextColumn("{task.description}"), not console.is_terminal
        counts = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(names, *counts, console=console, transient=True, disable=quiet)
        self._task = self._bar.add_task("starting", total=len(tasks))
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, task: Task) -> None:
        self._running.append(task.name)
        self._bar.update(self._task, description=", ".join(self._running))
        if not self.console.is_terminal:
            self.console.print(f"           {task.name} ...", highlight=False, soft_wrap=True)

    def finished(self, task: Task, outcome: Outcome) -> None:
        if task.name in self._running:
            self._running.remove(task.name)
        self._bar.update(self._task, description=", ".join(self._running) or "waiting", advance=1)
        style = STYLES.get(outcome.status.value, "yellow")
        done = self._bar.tasks[0]
        count = rf"\[{done.completed:>3}/{done.total}]"
        timed = outcome.seconds >= 0.05 and outcome.status is not Status.REUSED
        seconds = f"{outcome.seconds:6.1f} s" if timed else " " * 8
        state = f"[{style}]{outcome.status.value:9}[/]"
        lines = [outcome.reason] if outcome.reason else []
        if outcome.status is Status.FAILED and outcome.log and outcome.log.exists():
            said = outcome.log.read_text(encoding="utf-8", errors="replace").splitlines()
            lines += [f"| {line}" for line in (said if self.verbose else said[-TAIL:])]
            lines.append(f"the whole log: {outcome.log}")
        more = "".join(escape(f"\n           {line}") for line in lines)
        # One call prints all lines, so that lines of other threads do not come between them.
        text = f"{count}  {state} {seconds}  {outcome.task}{more}"
        self.console.print(text, highlight=False, soft_wrap=True)


def summary(cells: Sequence[Cell], skipped: Mapping[str, str], manifest: Manifest) -> Table:
    """A row for each cell: the state, the time, the artefacts, and why something was not done."""
    table = Table(title=f"{PROJECT.distribution} release", title_justify="left")
    for name in ("cell", "state", "seconds", "artefacts, or the reason"):
        table.add_column(name, overflow="fold", no_wrap=name == "cell")
    for cell in cells:
        entry = manifest.cells[cell.name]
        lines = [name.rpartition("/")[2] for name in (entry.wheel, entry.conda) if name]
        why = [line for line in entry.reason.splitlines() if line]
        lines += [*why[:LINES], "... (its log has the rest)"] if len(why) > LINES else why
        if entry.state != "failed":
            lines += [f"{r.kind}: {r.why_not}" for r in entry.runs if not r.ran and r.why_not]
        beside = [str(r.facts["pytorch"]) for r in entry.runs if r.ran and r.facts.get("pytorch")]
        lines += [f"conda: installed and run beside {name}" for name in beside]
        text = "\n".join(escape(line) for line in dict.fromkeys(lines))
        state = f"[{STYLES.get(entry.state, 'yellow')}]{entry.state}[/]"
        table.add_row(cell.name, state, f"{sum(entry.steps.values()):.1f}", text)
    for name, reason in skipped.items():
        table.add_row(name, "[yellow]skipped[/]", "", escape(reason))
    return table
