"""Shows what runs: bars for a person, plain lines for a log."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

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
    """Hears of every task and shows it; lines stay on the screen, the bar does not."""

    def __init__(self, console: Console, total: int, verbose: bool = False) -> None:
        self.console, self.total, self.verbose = console, total, verbose
        self._count = 0
        self._running: list[str] = []
        self._lock = threading.Lock()
        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        self._bar = (
            Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            if console.is_terminal
            else None
        )
        self._task = self._bar.add_task("starting", total=total) if self._bar else None

    def __enter__(self) -> Reporter:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def _update(self, advance: int) -> None:
        if self._bar and self._task is not None:
            names = ", ".join(self._running) or "waiting"
            self._bar.update(self._task, description=names, advance=advance)

    def started(self, task: Task) -> None:
        with self._lock:
            self._running.append(task.name)
            self._update(0)
            if not self._bar:
                self._print(f"           {task.name} ...")

    def finished(self, outcome: Outcome) -> None:
        with self._lock:
            self._count += 1
            if outcome.task in self._running:
                self._running.remove(outcome.task)
            self._update(1)
            style = STYLES[outcome.status]
            count = f"[{self._count:>3}/{self.total}]".replace("[", r"\[", 1)
            seconds = f"{outcome.seconds:6.1f} s" if outcome.seconds >= 0.05 else " " * 8
            state = f"[{style}]{outcome.status.value:9}[/]"
            self._print(f"{count}  {state} {seconds}  {outcome.task}", markup=True)
            if outcome.status in (Status.FAILED, Status.SKIPPED):
                self._print(f"           {outcome.reason}")
            if outcome.status is Status.FAILED:
                self._show_log(outcome.log)

    def _print(self, text: str, markup: bool = False) -> None:
        self.console.print(text, markup=markup, highlight=False, soft_wrap=True)

    def _show_log(self, log: Path | None) -> None:
        if log is None or not log.exists():
            return
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        shown = lines if self.verbose else lines[-TAIL:]
        for line in shown:
            self._print(f"           | {line}")
        self._print(f"           the whole log: {log}")


def cell_state(cell: str, tasks: Sequence[Task], outcomes: dict[str, Outcome]) -> Status:
    """The worst of a cell's tasks."""
    states = [outcomes[task.name].status for task in tasks if cell in task.groups]
    for status in (Status.FAILED, Status.SKIPPED, Status.DONE):
        if status in states:
            return status
    return Status.REUSED


def summary(
    cells: Sequence[str],
    tasks: Sequence[Task],
    outcomes: dict[str, Outcome],
    skipped: dict[str, str],
    entries: Mapping[str, CellEntry],
) -> Table:
    """One line per cell: its state, its time, and what it led to or what stopped it."""
    table = Table(title="lltm release", title_justify="left")
    for name in ("cell", "state", "seconds", "artefacts, or the reason"):
        table.add_column(name, overflow="fold", no_wrap=name == "cell")
    for cell in cells:
        own = [task for task in tasks if cell in task.groups]
        state = cell_state(cell, tasks, outcomes)
        seconds = sum(outcomes[task.name].seconds for task in own)
        entry = entries[cell]
        lines = [name.rpartition("/")[2] for name in (entry.wheel, entry.conda) if name]
        why = [line for line in entry.reason.splitlines() if line]
        lines += [*why[:LINES], "... (its log has the rest)"] if len(why) > LINES else why
        if state is not Status.FAILED:
            lines += [f"{r.kind}: {r.why_not}" for r in entry.runs if not r.ran and r.why_not]
        beside = [str(r.facts["pytorch"]) for r in entry.runs if r.ran and r.facts.get("pytorch")]
        lines += [f"conda: installed beside {name}, and run" for name in beside]
        word = "partial" if state is Status.SKIPPED else state.value
        lines = [escape(line) for line in dict.fromkeys(lines)]
        table.add_row(cell, f"[{STYLES[state]}]{word}[/]", f"{seconds:.1f}", "\n".join(lines))
    for cell, reason in skipped.items():
        table.add_row(cell, f"[{STYLES[Status.SKIPPED]}]skipped[/]", "", escape(reason))
    return table
