"""Shows the run: bars for a person, plain lines for a log, one log file for each cell."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from release import PROJECT
from release.manifest import CellEntry
from release.shell import TAIL
from release.tasks import Outcome, Status, Task

STYLES = {
    Status.DONE: "green",
    Status.REUSED: "cyan",
    Status.FAILED: "bold red",
    Status.SKIPPED: "yellow",
}
LINES = 4  # of a cell's reason, in the table


class Reporter:
    """Shows every task; its lines stay on the screen, the bar does not.

    If `cell_logs` is a folder, the logs of each cell's tasks are collected in it, in `<cell>.log`.
    """

    def __init__(
        self,
        console: Console,
        tasks: Sequence[Task],
        *,
        verbose: bool = False,
        cell_logs: Path | None = None,
    ) -> None:
        self.console, self.total, self.verbose = console, len(tasks), verbose
        self.cell_logs = cell_logs
        for cell in {cell for task in tasks for cell in task.cells} if cell_logs else ():
            self._add(cell, "", mode="w")
        self._count = 0
        self._running: list[str] = []
        self._lock = threading.Lock()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        quiet = not console.is_terminal
        self._bar = Progress(
            *columns, TimeElapsedColumn(), console=console, transient=True, disable=quiet
        )
        self._task = self._bar.add_task("starting", total=self.total)

    def __enter__(self) -> Reporter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, task: Task) -> None:
        with self._lock:
            self._running.append(task.name)
            self._bar.update(self._task, description=", ".join(self._running))
            if not self.console.is_terminal:
                self._print(f"           {task.name} ...")

    def finished(self, task: Task, outcome: Outcome) -> None:
        with self._lock:
            self._count += 1
            if task.name in self._running:
                self._running.remove(task.name)
            names = ", ".join(self._running) or "waiting"
            self._bar.update(self._task, description=names, advance=1)
            self._show(outcome)
        if self.cell_logs:
            lines = [f"=== {outcome.task}: {outcome.status.value}, {outcome.took:.1f} s"]
            lines += [outcome.reason] if outcome.reason else []
            if outcome.log is not None and outcome.log.exists():
                lines.append(outcome.log.read_text(encoding="utf-8", errors="replace").rstrip())
            for cell in task.cells:
                self._add(cell, "\n".join(lines) + "\n\n")

    def _show(self, outcome: Outcome) -> None:
        style = STYLES[outcome.status]
        count = f"[{self._count:>3}/{self.total}]".replace("[", r"\[", 1)
        seconds = f"{outcome.seconds:6.1f} s" if outcome.seconds >= 0.05 else " " * 8
        state = f"[{style}]{outcome.status.value:9}[/]"
        self._print(f"{count}  {state} {seconds}  {outcome.task}", markup=True)
        if outcome.status in (Status.FAILED, Status.SKIPPED):
            self._print(f"           {outcome.reason}")
        if outcome.status is Status.FAILED and outcome.log and outcome.log.exists():
            lines = outcome.log.read_text(encoding="utf-8", errors="replace").splitlines()
            for line in lines if self.verbose else lines[-TAIL:]:
                self._print(f"           | {line}")
            self._print(f"           the whole log: {outcome.log}")

    def _print(self, text: str, markup: bool = False) -> None:
        self.console.print(text, markup=markup, highlight=False, soft_wrap=True)

    def _add(self, cell: str, text: str, mode: str = "a") -> None:
        self.cell_logs.mkdir(parents=True, exist_ok=True)
        with (self.cell_logs / f"{cell}.log").open(mode, encoding="utf-8") as file:
            file.write(text)


def cell_outcomes(
    cell: str, tasks: Iterable[Task], outcomes: Mapping[str, Outcome]
) -> list[Outcome]:
    return [outcomes[task.name] for task in tasks if cell in task.cells]


def worst(outcomes: Iterable[Outcome]) -> Status:
    states = {outcome.status for outcome in outcomes}
    order = (Status.FAILED, Status.SKIPPED, Status.DONE)
    return next((status for status in order if status in states), Status.REUSED)


def summary(
    cells: Sequence[str],
    tasks: Sequence[Task],
    outcomes: Mapping[str, Outcome],
    skipped: Mapping[str, str],
    entries: Mapping[str, CellEntry],
) -> Table:
    """One row for each cell: its state, its time, and its artefacts or what stopped it."""
    table = Table(title=f"{PROJECT.distribution} release", title_justify="left")
    for name in ("cell", "state", "seconds", "artefacts, or the reason"):
        table.add_column(name, overflow="fold", no_wrap=name == "cell")
    for cell in cells:
        own = cell_outcomes(cell, tasks, outcomes)
        state, entry = worst(own), entries[cell]
        lines = [name.rpartition("/")[2] for name in (entry.wheel, entry.conda) if name]
        why = [line for line in entry.reason.splitlines() if line]
        lines += [*why[:LINES], "... (its log has the rest)"] if len(why) > LINES else why
        if state is not Status.FAILED:
            lines += [f"{r.kind}: {r.why_not}" for r in entry.runs if not r.ran and r.why_not]
        beside = [str(r.facts["pytorch"]) for r in entry.runs if r.ran and r.facts.get("pytorch")]
        lines += [f"conda: installed beside {name}, and run" for name in beside]
        word = "partial" if state is Status.SKIPPED else state.value
        text = "\n".join(escape(line) for line in dict.fromkeys(lines))
        seconds = sum(outcome.seconds for outcome in own)
        table.add_row(cell, f"[{STYLES[state]}]{word}[/]", f"{seconds:.1f}", text)
    for cell, reason in skipped.items():
        table.add_row(cell, f"[{STYLES[Status.SKIPPED]}]skipped[/]", "", escape(reason))
    return table
