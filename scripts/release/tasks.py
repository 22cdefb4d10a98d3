"""Tasks and how they are run: in order of need, several at a time, skipped when nothing changed."""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from release import BUILD, ReleaseError
from release.shell import Log
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
        failed: what it wants and did not get because that failed.
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
        inputs: files whose content decides the result.
        facts: other things that decide it (versions, options, environment).
        groups: the cells for whose sake it runs.
    """

    name: str
    run: Callable[[Context], Sequence[Path]]
    needs: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


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


class Listener(Protocol):
    """Hears of every task; shows progress."""

    def started(self, task: Task) -> None: ...
    def finished(self, outcome: Outcome) -> None: ...


def run_tasks(
    tasks: Sequence[Task], store: Store, logs: Path, listener: Listener, jobs: int = 1
) -> dict[str, Outcome]:
    """Runs every task whose needs are met; a failure stops only what needs it.

    A full disk is the exception: nothing new is started then, since all of it would fail.
    """
    waiting = {task.name: task for task in tasks}
    outcomes: dict[str, Outcome] = {}
    running: dict[Future[Outcome], Task] = {}
    full = ""
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        while waiting or running:
            for task in list(waiting.values()):
                if not _ready(task, outcomes) or len(running) >= jobs:
                    continue
                del waiting[task.name]
                if outcome := _blocked(task, outcomes, full):
                    outcomes[task.name] = outcome
                    listener.finished(outcome)
                    continue
                given = _given(task, outcomes)
                running[pool.submit(_run_one, task, given, store, logs, listener)] = task
            if running:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    task = running.pop(future)
                    outcomes[task.name] = outcome = future.result()
                    full = full or (outcome.reason if outcome.disk_full else "")
                    listener.finished(outcome)
            elif waiting and not any(_ready(task, outcomes) for task in waiting.values()):
                raise ReleaseError(f"tasks need what no task makes: {sorted(waiting)}")
    return outcomes


@dataclass(frozen=True)
class _Given:
    """What the tasks before it left for a task."""

    made: dict[str, list[Path]]
    failed: frozenset[str]


def _ready(task: Task, outcomes: dict[str, Outcome]) -> bool:
    return all(name in outcomes for name in (*task.needs, *task.wants))


def _given(task: Task, outcomes: dict[str, Outcome]) -> _Given:
    before = {name: outcomes[name] for name in (*task.needs, *task.wants)}
    good = (Status.DONE, Status.REUSED)
    made = {name: list(o.outputs) for name, o in before.items() if o.status in good}
    return _Given(made, frozenset(n for n, o in before.items() if o.status is Status.FAILED))


def _blocked(task: Task, outcomes: dict[str, Outcome], full: str) -> Outcome | None:
    if full:
        return Outcome(task.name, Status.SKIPPED, 0.0, reason=f"not started: {full}", blocked=True)
    for need in task.needs:
        status = outcomes[need].status
        if status in (Status.FAILED, Status.SKIPPED):
            reason = f"{need} {'failed' if status is Status.FAILED else 'was skipped'}"
            if status is Status.SKIPPED:
                reason = f"{reason}: {outcomes[need].reason}"
            return Outcome(task.name, Status.SKIPPED, 0.0, reason=reason, blocked=True)
    return None


def task_key(task: Task, given: _Given) -> str:
    """Changes when the task's inputs, the outputs it reads, its facts or its code change."""
    function = task.run.func if isinstance(task.run, partial) else task.run
    code = Path(inspect.getsourcefile(function) or __file__)
    needs = {name: [digest(path) for path in paths] for name, paths in given.made.items()}
    facts = {"facts": task.facts, "needs": needs, "failed": sorted(given.failed)}
    return key_of(task.name, [code, *task.inputs], facts)


def _run_one(task: Task, given: _Given, store: Store, logs: Path, listener: Listener) -> Outcome:
    begun = time.monotonic()
    path = logs / f"{task.name}.log"
    try:
        key = task_key(task, given)
        if stamp := store.valid(task.name, key):
            return Outcome(
                task.name, Status.REUSED, 0.0, tuple(stamp.paths), log=path, took=stamp.seconds
            )
        store.forget(task.name)
        listener.started(task)
        with Log(path) as log:
            outputs = list(task.run(Context(log, given.made, given.failed)))
        seconds = time.monotonic() - begun
        digests = {relative(output): digest(output) for output in outputs}
        store.write(task.name, Stamp(key, digests, round(seconds, 2)))
        return Outcome(task.name, Status.DONE, seconds, tuple(outputs), log=path, took=seconds)
    except SkipTask as reason:
        seconds = time.monotonic() - begun
        return Outcome(task.name, Status.SKIPPED, seconds, reason=str(reason), log=path)
    except Exception as error:
        seconds = time.monotonic() - begun
        full, reason = is_disk_full(error), explain(error)
        return Outcome(task.name, Status.FAILED, seconds, reason=reason, log=path, disk_full=full)


def is_disk_full(error: BaseException) -> bool:
    """Whether it failed for want of space: its own writing, or a command that it ran."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return os.strerror(errno.ENOSPC) in str(error)


def no_space(error: BaseException) -> str:
    """Where space is missing, how much is there, and that nothing done is lost."""
    where = Path(getattr(error, "filename", None) or BUILD)
    while not where.is_dir():
        where = where.parent
    free = f"{shutil.disk_usage(where).free / 1e6:.0f} MB are free"
    return (
        f"no space left on device ({error_place(error)}; {free} in {where}); free some and run "
        "the same again: what is finished is kept"
    )


def error_place(error: BaseException) -> str:
    """The file that could not be written, or what the command said."""
    if name := getattr(error, "filename", None):
        return str(name)
    return str(error).splitlines()[0]


def explain(error: BaseException) -> str:
    """One text for a person; a full disk gets its remedy."""
    if is_disk_full(error):
        return no_space(error)
    if isinstance(error, ReleaseError):
        return str(error)
    from lltm_conda.builder import BuildError

    return str(error) if isinstance(error, BuildError) else f"{type(error).__name__}: {error}"
