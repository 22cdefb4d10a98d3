"""Runs tasks in parallel, each after the tasks that it needs, and reuses valid outputs.

A large output that can be made again quickly (an environment with a CUDA torch) is
*temporary*. The run deletes a temporary output after the last task that reads it, but keeps
the stamp of the task that made it. If a task must read a deleted output, the run makes the
output again.
"""

import math
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .. import ReleaseError
from ..matrix.settings import Settings
from .processes import deferred
from .shell import Log, explain, is_disk_full, redacted
from .store import Stamp, digest, key_of, read_stamp, relative, stamp_file, write_stamp

#: What a step makes, as the steps that read it see it.
Made = TypeVar("Made")
MadeCovariant = TypeVar("MadeCovariant", covariant=True)


class Status(str, Enum):
    DONE = "done"
    REUSED = "unchanged"
    FAILED = "FAILED"
    SKIPPED = "skipped"


GOOD = (Status.DONE, Status.REUSED)


class SkipTask(Exception):
    """Raised by a task that cannot be done here or now, which is no failure.

    The text says why.
    """


class Outcome(NamedTuple):
    """How a task ended, and how long the run that did it took.

    `blocked` if it was not tried.
    """

    task: str
    status: Status
    seconds: float = 0.0
    outputs: tuple[Path, ...] = ()
    digests: tuple[str, ...] = ()
    reason: str = ""
    log: Path | None = None
    blocked: bool = False
    disk_full: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(ABC, Generic[MadeCovariant]):
    """One step of a run. A step is a subclass, whose fields say what the step works on.

    The step runs after the tasks in `reads`, whose outputs it reads. `after` has further tasks that
    must come first. The step is skipped
    unless all of them succeed; a step that runs `anyway` may find their temporary outputs
    deleted.

    The step's own fields, the contents of `inputs`, the outputs of the dependencies and the
    tool's code decide the result: if none of them has changed, an earlier result is reused.
    `temporary` has the folders that are deleted after the last reader, `disk` their
    approximate size in bytes. `cells` has the names of the cells that the step serves.
    """

    name: str
    after: "Tasks" = ()
    anyway: bool = False
    inputs: tuple[Path, ...] = ()
    temporary: tuple[Path, ...] = ()
    disk: int = 0
    cells: list[str] = field(default_factory=list)

    @abstractmethod
    def run(self, context: "Context") -> Sequence[Path]:
        """Does the step; returns the files and folders that it made."""

    @abstractmethod
    def made(self, paths: Sequence[Path]) -> MadeCovariant:
        """The outputs by their names, out of the paths that `run` has returned."""

    @property
    def reads(self) -> "Tasks":
        """The tasks whose outputs the step reads."""
        return ()

    @property
    def own_fields(self) -> dict[str, object]:
        """The values of the fields that the subclass adds, by name."""
        common = {entry.name for entry in fields(Task)}
        names = [entry.name for entry in fields(self) if entry.name not in common]
        return {name: getattr(self, name) for name in names}

    @property
    def needs(self) -> "Tasks":
        """The tasks that come before this one."""
        return tuple(dict.fromkeys([*self.reads, *self.after]))

    def differs(self, other: "Task[Any]") -> list[str]:
        """The fields that another task of this class has otherwise, but for `cells`."""
        names = [entry.name for entry in fields(self) if entry.name != "cells"]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def __str__(self) -> str:
        return self.name


#: A task, and tasks, whatever they make.
AnyTask = Task[Any]
Tasks = tuple[AnyTask, ...]


class FileTask(Task[Path]):
    """A step that makes one file or folder."""

    def made(self, paths: Sequence[Path]) -> Path:
        return paths[0]


class CheckTask(Task[None]):
    """A step that makes nothing that another one reads."""

    def made(self, paths: Sequence[Path]) -> None:
        return None


def _without_tasks(value: object) -> object:
    """The value with the names of tasks in the place of tasks, whose results count instead."""
    if isinstance(value, Task):
        return value.name
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [_without_tasks(inner) for inner in value]
    return value


class Context(NamedTuple):
    """What a running task may use: its log, the run's settings, its largest number of processes,
    and the outcomes of earlier tasks.
    """

    log: Log
    settings: Settings
    jobs: int = 1
    outcomes: Mapping[str, Outcome] = {}

    def output(self, task: Task[Made]) -> Made:
        """What a task has made that the running task reads."""
        return task.made(self.outcomes[task.name].outputs)

    def outputs(self, tasks: Iterable[Task[Made]]) -> tuple[Made, ...]:
        """What each task has made."""
        return tuple(self.output(task) for task in tasks)


class Listener(Protocol):
    """Hears of each task that starts to work, and of each that has ended."""

    def started(self, task: AnyTask) -> None: ...

    def finished(self, task: AnyTask, outcome: Outcome) -> None: ...


def run_tasks(
    tasks: Sequence[AnyTask],
    folder: Path,
    listener: Listener,
    *,
    settings: Settings,
    jobs: int = 1,
    room: float = math.inf,
) -> dict[str, Outcome]:
    """Runs the tasks, up to `jobs` at a time, and returns the outcomes by the tasks' names.

    A failure stops only tasks that need the failed task and are not `anyway`; a full disk
    stops all tasks that have not started. While other tasks run, a task waits if its
    temporary outputs and those on the disk exceed `room` bytes. `folder` gets stamps and
    logs. Raises ReleaseError if a task needs one that is not among `tasks`, and
    KeyboardInterrupt after a signal.
    """
    run = _Run(tasks, folder, listener, settings=settings, jobs=jobs)
    running: dict[Future[Outcome], AnyTask] = {}
    with deferred() as stop, ThreadPoolExecutor(max_workers=jobs) as pool:
        while run.waiting or running:
            while len(running) < jobs and (task := run.next(room, idle=not running)):
                run.waiting.remove(task)
                running[pool.submit(run.one, task)] = task
            if not running:
                names = sorted(map(str, run.waiting))
                raise ReleaseError(f"tasks need tasks that are not in this run: {names}")
            for future in stop.next_of(running):
                run.finish(running.pop(future), future.result())
    return run.outcomes


class _Run:
    """The state of one run: waiting tasks, outcomes, and the temporary outputs on the disk."""

    def __init__(
        self,
        tasks: Sequence[AnyTask],
        folder: Path,
        listener: Listener,
        *,
        settings: Settings,
        jobs: int,
    ) -> None:
        self.tasks = tasks
        self.folder = folder
        self.listener = listener
        self.settings = settings
        self.jobs = jobs
        self.waiting = list(tasks)
        self.outcomes: dict[str, Outcome] = {}
        self._needs = {task: task.needs for task in tasks}
        self._disk_full = False
        self._temporary = [task for task in tasks if task.temporary]  # not deleted yet
        self._done: set[AnyTask] = set()  # by this run
        self._again = threading.RLock()

    def next(self, room: float, *, idle: bool) -> AnyTask | None:
        """The next task that may start now; None if there is none."""
        used = sum(task.disk for task in self._temporary if task not in self.waiting)
        ready = [task for task in self.waiting if self._is_ready(task)]
        fitting = [task for task in ready if not task.temporary or used + task.disk <= room]
        # If no task runs, no task will make room, so the next task may exceed the limit.
        return next(iter(fitting or (ready if idle else ())), None)

    def _is_ready(self, task: AnyTask) -> bool:
        return all(need.name in self.outcomes for need in self._needs[task])

    def finish(self, task: AnyTask, outcome: Outcome) -> None:
        self.outcomes[task.name] = outcome
        self._disk_full = self._disk_full or outcome.disk_full
        self.listener.finished(task, outcome)
        for old in reversed(list(self._temporary)):
            readers = [t for t in self.tasks if old in self._needs[t] and not t.anyway]
            # `old` stays as long as its readers' temporary outputs: making those again
            # needs `old`.
            is_kept = any(reader in self._temporary for reader in readers)
            if not is_kept and all(t.name in self.outcomes for t in (old, *readers)):
                self._temporary.remove(old)
                for folder in old.temporary:
                    shutil.rmtree(folder, ignore_errors=True)

    def one(self, task: AnyTask) -> Outcome:
        """Runs a task unless it is blocked or its outputs are still valid."""
        if obstacle := self._obstacle(task):
            return Outcome(task.name, Status.SKIPPED, reason=obstacle, blocked=True)
        begin = time.monotonic()
        log = self.folder / "logs" / f"{task.name}.log"
        try:
            return self._reuse_or_do(task, log)
        except SkipTask as skip:
            return Outcome(
                task=task.name,
                status=Status.SKIPPED,
                seconds=time.monotonic() - begin,
                reason=redacted(str(skip)),
                log=log,
            )
        except Exception as error:
            return Outcome(
                task=task.name,
                status=Status.FAILED,
                seconds=time.monotonic() - begin,
                reason=explain(error, self.folder),
                log=log,
                disk_full=is_disk_full(error),
            )

    def _obstacle(self, task: AnyTask) -> str:
        """Why a task cannot run: a full disk, or a needed task that is not done.

        "" if it can.
        """
        if self._disk_full:
            return "not started: no space left"
        if task.anyway:
            return ""
        for need in self._needs[task]:
            outcome = self.outcomes[need.name]
            if outcome.status is Status.FAILED:
                return f"{need} failed"
            if outcome.status is Status.SKIPPED and outcome.blocked:
                return outcome.reason
            if outcome.status is Status.SKIPPED:
                return f"{need} was skipped: {outcome.reason}"
        return ""

    def _reuse_or_do(self, task: AnyTask, log_file: Path) -> Outcome:
        key = self._key(task)
        status = Status.REUSED
        stamp = read_stamp(self.folder, task.name)
        if stamp is None or stamp.key != key or not self._is_intact(stamp, task):
            # The old stamp goes before the work begins, so that a stopped task is done again.
            stamp_file(self.folder, task.name).unlink(missing_ok=True)
            self.listener.started(task)
            status = Status.DONE
            with Log(log_file, self.settings) as log:
                for need in () if task.anyway else self._needs[task]:
                    self._bring_back(need, log)
                stamp = self._do(task, key, log)
        return Outcome(
            task=task.name,
            status=status,
            seconds=stamp.seconds,
            outputs=tuple(self.settings.repo / path for path in stamp.outputs),
            digests=tuple(stamp.outputs.values()),
            log=log_file,
        )

    def _is_intact(self, stamp: Stamp, task: AnyTask) -> bool:
        return stamp.is_intact(self.settings.repo, without=task.temporary)

    def _key(self, task: AnyTask) -> str:
        """A hash of all that decides the result of the task."""
        before = [self.outcomes[need.name] for need in self._needs[task]]
        facts = {
            "fields": {name: _without_tasks(value) for name, value in task.own_fields.items()},
            "project": self.settings.project._asdict(),
            # Only a task that runs `anyway` comes after one that failed.
            "read": {o.task: [o.status is Status.FAILED, *o.digests] for o in before},
        }
        return key_of(task.name, task.inputs, facts, self.settings.repo)

    def _do(self, task: AnyTask, key: str, log: Log) -> Stamp:
        begin = time.monotonic()
        outputs = task.run(Context(log, self.settings, self.jobs, self.outcomes))
        seconds = round(time.monotonic() - begin, 2)
        # The files of a temporary output are not hashed: the key of its task stands for them.
        digests = {path: key if path in task.temporary else digest(path) for path in outputs}
        named = {relative(path, self.settings.repo): value for path, value in digests.items()}
        stamp = Stamp(key, named, seconds)
        write_stamp(self.folder, task.name, stamp)
        self._done.add(task)
        return stamp

    def _bring_back(self, task: AnyTask, log: Log) -> None:
        """Makes a deleted temporary output again, once for all readers."""
        if not task.temporary:
            return
        with self._again:
            if task not in self._done:
                log.write(f"{task.name} was deleted to save space and is made again")
                for need in self._needs[task]:
                    self._bring_back(need, log)
                self._do(task, self._key(task), log)
