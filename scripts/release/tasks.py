"""The types for a task, its context while it runs, and its outcome; `runner` runs tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from release.shell import Log


class Status(str, Enum):
    DONE = "done"
    REUSED = "unchanged"
    FAILED = "FAILED"
    SKIPPED = "skipped"


GOOD = (Status.DONE, Status.REUSED)


class SkipTask(Exception):
    """Raised by a task that this machine cannot do; the text says why and what would help."""


@dataclass(frozen=True, eq=False)
class Task:
    """One step of a run.

    Attributes:
        run: the function; a task among the arguments of a `partial` becomes that task's first
            output.
        needs: tasks whose outputs it reads; it is skipped if one of them has none.
        after: tasks that it waits for, whether they succeed or not. It gets their outputs, but a
            temporary output may already be deleted.
        inputs: files that the result depends on. Code and the arguments of a `partial` are always
            inputs and not listed here.
        facts: all other facts that the result depends on (versions, the environment).
        temporary: outputs, and other folders, that are deleted after the last reader.
        disk: roughly how many bytes it puts on the disk.
    """

    name: str
    run: Callable[[Context], Sequence[Path]]
    needs: tuple[Task, ...] = ()
    after: tuple[Task, ...] = ()
    inputs: tuple[Path, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    temporary: tuple[Path, ...] = ()
    disk: int = 20_000_000
    cells: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Context:
    """The context of a running task: the outputs of the tasks in `needs` and `after` that
    succeeded, the tasks that failed, and how many processes it may start at a time."""

    log: Log
    made: Mapping[Task, Sequence[Path]] = field(default_factory=dict)
    failed: frozenset[Task] = frozenset()
    jobs: int = 1

    def only(self, task: Task) -> Path:
        (path,) = self.made[task]
        return path

    def run(self, task: Task) -> Sequence[Path]:
        arguments = getattr(task.run, "keywords", {})
        return task.run(self, **{name: self._output(value) for name, value in arguments.items()})

    def _output(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(self._output, value))
        return self.made[value][0] if isinstance(value, Task) else value


def tasks_of(value: Any) -> Iterator[Task]:
    """The tasks among arguments."""
    if isinstance(value, Task):
        yield value
    elif type(value) is tuple:
        for part in value:
            yield from tasks_of(part)


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    Attributes:
        seconds: its time in this run; `took` is its time in the run that last did it.
        reason: why it failed or was skipped; `blocked`: because of another task.
    """

    task: str
    status: Status
    seconds: float
    outputs: tuple[Path, ...] = ()
    digests: tuple[str, ...] = ()
    reason: str = ""
    log: Path | None = None
    took: float = 0.0
    blocked: bool = False
    disk_full: bool = False
