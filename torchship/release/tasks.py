"""Runs tasks in parallel, each after the tasks that it needs, and reuses valid outputs.

A large output that can be made again quickly (an environment with a CUDA torch) is *temporary*. The
run deletes a temporary output after the last task that reads it, but keeps the stamp of the task
that made it. If a task must read a deleted output, the run makes the output again.
"""

import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from . import PROJECT, REPO, ReleaseError
from .processes import deferred
from .shell import Log, explain, is_disk_full, redacted
from .store import Stamp, digest, key_of, read_stamp, relative, stamp_file, write_stamp


class Status(str, Enum):
    DONE = "done"
    REUSED = "unchanged"
    FAILED = "FAILED"
    SKIPPED = "skipped"


GOOD = (Status.DONE, Status.REUSED)


class SkipTask(Exception):
    """Raised by a task that cannot be done here or now, which is no failure; the text says why."""


@dataclass(frozen=True, eq=False)
class Task:
    """One step of a run; the tool's code, `run`, `inputs`, `facts` and `needs` decide the result.

    A task among the arguments of the partial `run` becomes that task's first output. The task runs
    after all of `needs`, and is skipped unless they succeed. A task that runs `anyway` may find
    their temporary outputs deleted. `temporary` has the folders that are deleted after the last
    reader, `disk` their approximate size in bytes.
    """

    name: str
    run: Callable[..., Sequence[Path]]
    needs: tuple["Task", ...] = ()
    anyway: bool = False
    inputs: tuple[Path, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    temporary: tuple[Path, ...] = ()
    disk: int = 0
    cells: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name

    @property
    def arguments(self) -> dict[str, Any]:
        return getattr(self.run, "keywords", {})


class Outcome(NamedTuple):
    """How a task ended, and how long the run that did it took; `blocked` if it was not tried."""

    task: str
    status: Status
    seconds: float = 0.0
    outputs: tuple[Path, ...] = ()
    digests: tuple[str, ...] = ()
    reason: str = ""
    log: Path | None = None
    blocked: bool = False
    disk_full: bool = False


class Context(NamedTuple):
    """A running task's log, its largest number of processes, and the outcomes of earlier tasks."""

    log: Log
    jobs: int = 1
    outcomes: Mapping[str, Outcome] = {}


def run_tasks(
    tasks: Sequence[Task], folder: Path, listener: Any, jobs: int = 1, room: float = math.inf
) -> dict[str, Outcome]:
    """Runs the tasks, up to `jobs` at a time, and returns the outcomes by the tasks' names.

    A failure stops only tasks that need the failed task and are not `anyway`; a full disk stops all
    tasks that have not started. While other tasks run, a task waits if its temporary outputs and
    those on the disk exceed `room` bytes. `folder` gets stamps and logs. `listener` has the methods
    `started` and `finished` of :class:`listing.Reporter`. Raises ReleaseError if a task needs one
    that is not among `tasks`, and KeyboardInterrupt after a signal.
    """
    run = _Run(tasks, folder, listener, jobs)
    running: dict[Future[Outcome], Task] = {}
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

    def __init__(self, tasks: Sequence[Task], folder: Path, listener: Any, jobs: int) -> None:
        self.tasks, self.folder, self.listener, self.jobs = tasks, folder, listener, jobs
        self.waiting = list(tasks)
        self.outcomes: dict[str, Outcome] = {}
        self._full = False
        self._temporary = [task for task in tasks if task.temporary]  # not deleted yet
        self._made: set[Task] = set()
        self._again = threading.RLock()

    def next(self, room: float, *, idle: bool) -> Task | None:
        """The next task that may start now; None if there is none."""
        used = sum(task.disk for task in self._temporary if task not in self.waiting)
        ready = [t for t in self.waiting if all(n.name in self.outcomes for n in t.needs)]
        fits = [task for task in ready if not task.temporary or used + task.disk <= room]
        # If no task runs, no task will make room, so the next task may exceed the limit.
        return next(iter(fits or (ready if idle else ())), None)

    def finish(self, task: Task, outcome: Outcome) -> None:
        self.outcomes[task.name] = outcome
        self._full = self._full or outcome.disk_full
        self.listener.finished(task, outcome)
        for old in reversed(list(self._temporary)):
            readers = [t for t in self.tasks if old in t.needs and not t.anyway]
            # `old` stays as long as its readers' temporary outputs: making those again needs `old`.
            kept = any(reader in self._temporary for reader in readers)
            if not kept and all(t.name in self.outcomes for t in (old, *readers)):
                self._temporary.remove(old)
                for folder in old.temporary:
                    shutil.rmtree(folder, ignore_errors=True)

    def _blocked(self, task: Task) -> str:
        """Why a task cannot run: a full disk, or a needed task that is not done; "" if it can."""
        if self._full:
            return "not started: no space left"
        for need in () if task.anyway else task.needs:
            outcome = self.outcomes[need.name]
            if outcome.status is Status.FAILED:
                return f"{need} failed"
            if outcome.status is Status.SKIPPED:
                why = f"{need} was skipped: {outcome.reason}"
                return outcome.reason if outcome.blocked else why
        return ""

    def one(self, task: Task) -> Outcome:
        """Runs a task unless it is blocked or its outputs are still valid."""
        if why := self._blocked(task):
            return Outcome(task.name, Status.SKIPPED, reason=why, blocked=True)
        begun, path = time.monotonic(), self.folder / "logs" / f"{task.name}.log"
        try:
            key = self._key(task)
            status, stamp = Status.REUSED, read_stamp(self.folder, task.name)
            if stamp is None or stamp.key != key or not stamp.intact(without=task.temporary):
                stamp_file(self.folder, task.name).unlink(missing_ok=True)
                self.listener.started(task)
                with Log(path) as log:
                    for need in () if task.anyway else task.needs:
                        self._bring_back(need, log)
                    status, stamp = Status.DONE, self._do(task, key, log)
            made, digests = (REPO / path for path in stamp.outputs), stamp.outputs.values()
            return Outcome(task.name, status, stamp.seconds, (*made,), (*digests,), log=path)
        except SkipTask as skip:
            status, reason, full = Status.SKIPPED, redacted(str(skip)), False
        except Exception as error:
            status, reason, full = Status.FAILED, explain(error), is_disk_full(error)
        seconds = time.monotonic() - begun
        return Outcome(task.name, status, seconds, reason=reason, log=path, disk_full=full)

    def _key(self, task: Task) -> str:
        """A hash of all that decides the result of the task."""
        before = [self.outcomes[need.name] for need in task.needs]
        facts = {
            "arguments": task.arguments,
            "facts": task.facts,
            "project": PROJECT._asdict(),
            "read": {o.task: [o.status is Status.FAILED, *o.digests] for o in before},
        }
        return key_of(task.name, task.inputs, facts)

    def _do(self, task: Task, key: str, log: Log) -> Stamp:
        begun = time.monotonic()
        given = {name: self._output(value) for name, value in task.arguments.items()}
        outputs = task.run(Context(log, self.jobs, self.outcomes), **given)
        took = round(time.monotonic() - begun, 2)
        # The files of a temporary output are not hashed: the key of its task stands for them.
        kept = {p: key if p in task.temporary else digest(p) for p in outputs}
        stamp = Stamp(key, {relative(path): value for path, value in kept.items()}, took)
        write_stamp(self.folder, task.name, stamp)
        self._made.add(task)
        return stamp

    def _output(self, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(self._output, value))
        return self.outcomes[value.name].outputs[0] if isinstance(value, Task) else value

    def _bring_back(self, task: Task, log: Log) -> None:
        """Makes a deleted temporary output again, once for all readers."""
        if not task.temporary:
            return
        with self._again:
            if task not in self._made:
                log.write(f"{task.name} was deleted to save space and is made again")
                for need in task.needs:
                    self._bring_back(need, log)
                self._do(task, self._key(task), log)
