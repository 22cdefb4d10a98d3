"""Shows what a run does: a bar for a person, plain lines for a log."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from release.shell import TAIL
from release.tasks import Outcome, Status, Task

STYLES = {
    Status.DONE: "green",
    Status.REUSED: "cyan",
    Status.FAILED: "bold red",
    Status.SKIPPED: "yellow",
}


class Reporter:
    """Shows every task; its lines stay on the screen, the bar does not."""

    def __init__(self, console: Console, tasks: Sequence[Task], *, verbose: bool = False) -> None:
        self.console, self.total, self.verbose = console, len(tasks), verbose
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
