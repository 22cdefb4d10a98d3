"""Tasks and how they are run: in order of need, several at a time, skipped when nothing changed.

What is large and quick to make again (an environment with a CUDA torch) is shed: deleted once the
last task that reads it is over. Its stamp stays good, and it comes back when a reader has to run.
"""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from release import BUILD, ReleaseError
from release.shell import Log
from release.stopping import deferred
from release.store import Stamp, Store, digest, key_of, relative


class Status(str, Enum):
    DONE = "done"
    REUSED = "unchanged"
    FAILED = "FAILED"
    SKIPPED = "skipped"


class SkipTask(Exception):
    """Raised by a task that this machine cannot do; the text says why and what would help."""


@dataclass(frozen=True)
class Context:
    """What a running task gets: its log, and what the tasks it needs have made.

    Attributes:
        log: for everything it has to say.
        made: the outputs of what it needs, and of what it wants where that was made.
        failed: what it wants or heeds that failed.
    """

    log: Log
    made: dict[str, list[Path]]
    failed: frozenset[str] = frozenset()

    def only(self, task: str) -> Path:
        (path,) = self.made[task]
        return path


@dataclass(frozen=True)
class Task:
    """One step.

    Attributes:
        name: unique, `glue/stable210`.
        run: does the work and returns the files or folders it made.
        needs: names of tasks whose outputs it reads; without them it is skipped.
        wants: names of tasks that it waits for and does without where they failed.
        heeds: names of tasks that it waits for to learn whether they failed; it reads nothing.
        inputs: files whose content decides the result.
        facts: other things that decide it (versions, options, environment).
        groups: the cells for whose sake it runs.
        sheds: folders, outputs among them, that are deleted when nothing reads them any more.
        holds: bytes on the disk from its start until then, roughly.
    """

    name: str
    run: Callable[[Context], Sequence[Path]]
    needs: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    heeds: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    sheds: tuple[Path, ...] = ()
    holds: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    Attributes:
        seconds: what it took in this run; `took` is what it took when it was done.
        outputs: what it made.
        reason: why it failed or was skipped.
        log: where its words are.
        blocked: skipped for want of what it needs, not by its own decision.
        disk_full: it failed for want of space.
        digests: of what it made, in the order of `outputs`.
    """

    task: str
    status: Status
    seconds: float
    outputs: tuple[Path, ...] = ()
    reason: str = ""
    log: Path | None = None
    took: float = 0.0
    blocked: bool = False
    disk_full: bool = False
    digests: tuple[str, ...] = ()


class Listener(Protocol):
    """Hears of every task; shows progress."""

    def started(self, task: Task) -> None: ...
    def finished(self, outcome: Outcome) -> None: ...


def run_tasks(
    tasks: Sequence[Task],
    store: Store,
    logs: Path,
    listener: Listener,
    jobs: int = 1,
    room: int | None = None,
) -> dict[str, Outcome]:
    """Runs every task whose needs are met; a failure stops only what needs it.

    A full disk is the exception: nothing new is started then, since all of it would fail. Tasks
    whose `holds` would together exceed `room` wait for each other, unless nothing else can go on.

    Raises:
        KeyboardInterrupt: a signal came, and what ran was ended.
    """
    jobs = max(1, jobs)
    run = _Run(tasks, store, logs, listener, jobs)
    waiting = dict(run.tasks)
    outcomes: dict[str, Outcome] = {}
    running: dict[Future[Outcome], Task] = {}
    full = False
    with deferred() as stop, ThreadPoolExecutor(max_workers=jobs) as pool:
        while waiting or running:
            for task in run.startable(waiting, outcomes, jobs - len(running), room):
                del waiting[task.name]
                if outcome := _blocked(task, outcomes, full):
                    outcomes[task.name] = outcome
                    listener.finished(outcome)
                    continue
                given = _given(task, outcomes)
                running[pool.submit(run.one, task, given)] = task
            if running:
                for future in stop.next_of(running):
                    task = running.pop(future)
                    outcomes[task.name] = outcome = future.result()
                    full = full or outcome.disk_full
                    listener.finished(outcome)
            elif waiting and not any(_ready(task, outcomes) for task in waiting.values()):
                raise ReleaseError(f"tasks need what no task makes: {sorted(waiting)}")
            run.shed(outcomes)
    return outcomes


@dataclass(frozen=True)
class _Given:
    """What the tasks before it left for a task."""

    made: dict[str, list[Path]]
    digests: dict[str, list[str]]
    failed: frozenset[str]


def _ready(task: Task, outcomes: Mapping[str, Outcome]) -> bool:
    return all(name in outcomes for name in (*task.needs, *task.wants, *task.heeds))


def _given(task: Task, outcomes: dict[str, Outcome]) -> _Given:
    before = {name: outcomes[name] for name in (*task.needs, *task.wants)}
    good = (Status.DONE, Status.REUSED)
    made = {name: list(o.outputs) for name, o in before.items() if o.status in good}
    digests = {name: list(before[name].digests) for name in made}
    heard = (*task.needs, *task.wants, *task.heeds)
    failed = frozenset(name for name in heard if outcomes[name].status is Status.FAILED)
    return _Given(made, digests, failed)


def _blocked(task: Task, outcomes: dict[str, Outcome], full: bool) -> Outcome | None:
    if full:
        return Outcome(
            task.name, Status.SKIPPED, 0.0, reason="not started: no space left", blocked=True
        )
    for name in task.needs:
        need = outcomes[name]
        if need.status not in (Status.FAILED, Status.SKIPPED):
            continue
        reason = f"{name} failed"
        if need.status is Status.SKIPPED:  # the first cause, not the whole chain
            reason = need.reason if need.blocked else f"{name} was skipped: {need.reason}"
        return Outcome(task.name, Status.SKIPPED, 0.0, reason=reason, blocked=True)
    return None


def task_key(task: Task, given: _Given) -> str:
    """Changes when the task's inputs, the outputs it reads, its facts or its code change."""
    function = task.run.func if isinstance(task.run, partial) else task.run
    code = Path(inspect.getsourcefile(function) or __file__)
    facts = {"facts": task.facts, "needs": given.digests, "failed": sorted(given.failed)}
    return key_of(task.name, [code, *task.inputs], facts)


class _Run:
    """The tasks of one run, what is on the disk of what they shed, and how one is done."""

    def __init__(
        self,
        tasks: Sequence[Task],
        store: Store,
        logs: Path,
        listener: Listener,
        workers: int,
    ) -> None:
        self.tasks = {task.name: task for task in tasks}
        self.store, self.logs, self.listener = store, logs, listener
        self.workers = workers
        self.held = 0
        self._given: dict[str, _Given] = {}
        self._there: set[str] = set()
        self._shedding = [task for task in tasks if task.sheds or task.holds]
        self._locks = {task.name: threading.Lock() for task in self._shedding}
        self._readers = {
            task.name: {t.name for t in tasks if task.name in (*t.needs, *t.wants)}
            for task in self._shedding
        }

    def startable(
        self,
        waiting: Mapping[str, Task],
        outcomes: Mapping[str, Outcome],
        workers: int,
        room: int | None,
    ) -> list[Task]:
        """At most `workers` tasks whose time has come, in order; they count as started."""
        ready = [task for task in waiting.values() if _ready(task, outcomes)]
        chosen: list[Task] = []
        for task in ready:
            if len(chosen) == workers:
                break
            if not task.holds or room is None or self.held + task.holds <= room:
                self.held += task.holds
                chosen.append(task)
        if ready and not chosen and workers == self.workers:
            # Nothing runs that could make room: rather crowded than stuck.
            self.held += ready[0].holds
            chosen = ready[:1]
        return chosen

    def one(self, task: Task, given: _Given) -> Outcome:
        """Does a task, or finds that it need not be done."""
        begun = time.monotonic()
        path = self.logs / f"{task.name}.log"
        self._given[task.name] = given
        try:
            key = task_key(task, given)
            if stamp := self._valid(task, key):
                return _outcome(task, Status.REUSED, 0.0, stamp, path)
            self.store.forget(task.name)
            self.listener.started(task)
            with Log(path) as log:
                for name in given.made:
                    self._bring_back(name, log)
                stamp = self._do(task, given, key, log)
            return _outcome(task, Status.DONE, time.monotonic() - begun, stamp, path)
        except SkipTask as reason:
            seconds = time.monotonic() - begun
            return Outcome(task.name, Status.SKIPPED, seconds, reason=str(reason), log=path)
        except Exception as error:
            seconds = time.monotonic() - begun
            full, why = is_disk_full(error), explain(error)
            return Outcome(task.name, Status.FAILED, seconds, reason=why, log=path, disk_full=full)

    def _valid(self, task: Task, key: str) -> Stamp | None:
        stamp = self.store.read(task.name)
        if stamp is None or stamp.key != key or not stamp.intact(without=task.sheds):
            return None
        if not task.sheds or stamp.intact():
            self._there.add(task.name)
        return stamp

    def _do(self, task: Task, given: _Given, key: str, log: Log) -> Stamp:
        begun = time.monotonic()
        outputs = list(task.run(Context(log, given.made, given.failed)))
        digests = {relative(output): digest(output) for output in outputs}
        stamp = Stamp(key, digests, round(time.monotonic() - begun, 2))
        self.store.write(task.name, stamp)
        self._there.add(task.name)
        return stamp

    def _bring_back(self, name: str, log: Log) -> None:
        """Makes again what a task has shed; several readers may want it at the same time."""
        task = self.tasks[name]
        if not task.sheds:
            return
        with self._locks[name]:
            if name in self._there:
                return
            log.write(f"{name} was deleted to save space and is made again")
            given = self._given[name]
            for need in given.made:
                self._bring_back(need, log)
            self._do(task, given, task_key(task, given), log)

    def shed(self, outcomes: Mapping[str, Outcome]) -> None:
        """Deletes what no task reads any more."""
        for task in list(self._shedding):
            if task.name in outcomes and self._readers[task.name] <= outcomes.keys():
                self._shedding.remove(task)
                self.held -= task.holds
                for folder in task.sheds:
                    shutil.rmtree(folder, ignore_errors=True)


def _outcome(task: Task, status: Status, seconds: float, stamp: Stamp, log: Path) -> Outcome:
    return Outcome(
        task.name,
        status,
        seconds,
        tuple(stamp.paths),
        log=log,
        took=stamp.seconds,
        digests=tuple(stamp.outputs.values()),
    )


def is_disk_full(error: BaseException) -> bool:
    """Whether it failed for want of space: its own writing, or a command that it ran."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return os.strerror(errno.ENOSPC) in str(error)


def no_space(error: BaseException) -> str:
    """Where space is missing, how much is there, and that nothing done is lost."""
    name = getattr(error, "filename", None)
    where = Path(name or BUILD)
    while not where.is_dir():
        where = where.parent
    what = f" for {name}" if name else "" if isinstance(error, OSError) else f" ({error})"
    free = f"{shutil.disk_usage(where).free / 1e6:.0f} MB are free in {where}"
    return (
        f"no space left on device{what}: {free}; free some and run the same again: what is "
        "finished is kept"
    )


def explain(error: BaseException) -> str:
    """One text for a person; a full disk gets its remedy."""
    if is_disk_full(error):
        return no_space(error)
    if isinstance(error, ReleaseError):
        return str(error)
    from lltm_conda.builder import BuildError

    return str(error) if isinstance(error, BuildError) else f"{type(error).__name__}: {error}"
