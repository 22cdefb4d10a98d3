"""One log per cell, out of the logs of its steps, as they end: dist/logs/<cell>.log."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from release.tasks import Outcome, Task


class CellLogs:
    """Hears of every task and adds its log to those of the cells it ran for."""

    def __init__(self, folder: Path, tasks: Sequence[Task]) -> None:
        self.folder = folder
        self._cells = {task.name: task.groups for task in tasks}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        for cell in {cell for groups in self._cells.values() for cell in groups}:
            (folder / f"{cell}.log").write_text("", encoding="utf-8")

    def started(self, task: Task) -> None:
        """Nothing to add yet."""

    def finished(self, outcome: Outcome) -> None:
        lines = [f"=== {outcome.task}: {outcome.status.value}, {outcome.took:.1f} s"]
        lines += [outcome.reason] if outcome.reason else []
        if outcome.log is not None and outcome.log.exists():
            lines.append(outcome.log.read_text(encoding="utf-8", errors="replace").rstrip())
        text = "\n".join(lines) + "\n\n"
        with self._lock:
            for cell in self._cells.get(outcome.task, ()):
                with (self.folder / f"{cell}.log").open("a", encoding="utf-8") as file:
                    file.write(text)


class Listeners:
    """Several that hear of every task, in order."""

    def __init__(self, *listeners: object) -> None:
        self._all = listeners

    def started(self, task: Task) -> None:
        for listener in self._all:
            listener.started(task)  # type: ignore[attr-defined]

    def finished(self, outcome: Outcome) -> None:
        for listener in self._all:
            listener.finished(outcome)  # type: ignore[attr-defined]
