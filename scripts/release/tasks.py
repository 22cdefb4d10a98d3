"""Tasks and how they are run: in order of need, several at a time, skipped when nothing changed."""

from __future__ import annotations

import errno
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from release import ReleaseError
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
    """What a running task gets: its log, and what the tasks it needs have made."""

    log: Log
    made: dict[str, list[Path]]

    def only(self, task: str) -> Path:
        (path,) = self.made[task]
        return path


@dataclass(frozen=True)
class Task:
    """One step.

    Attributes:
        name: unique, `glue/stable210`.
        run: does the work and returns the files or folders it made.
        needs: names of tasks whose outputs it reads.
        inputs: files whose content decides the result.
        facts: other things that decide it (versions, options, environment).
        groups: the cells for whose sake it runs.
    """

    name: str
    run: Callable[[Context], Sequence[Path]]
    needs: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    task: str
    status: Status
    seconds: float
    outputs: tuple[Path, ...] = ()
    reason: str = ""
    log: Path | None = None


class Listener(Protocol):
    """Hears of every task; shows progress."""

    def started(self, task: Task) -> None: ...
    def finished(self, outcome: Outcome) -> None: ...


def run_tasks(
    tasks: Sequence[Task], store: Store, logs: Path, listener: Listener, jobs: int = 1
) -> dict[str, Outcome]:
    """Runs every task whose needs are met; a failure stops only what needs it."""
    waiting = {task.name: task for task in tasks}
    outcomes: dict[str, Outcome] = {}
    running: dict[Future[Outcome], Task] = {}
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        while waiting or running:
            for task in list(waiting.values()):
                if not all(need in outcomes for need in task.needs) or len(running) >= jobs:
                    continue
                del waiting[task.name]
                if outcome := _blocked(task, outcomes):
                    outcomes[task.name] = outcome
                    listener.finished(outcome)
                    continue
                made = {need: list(outcomes[need].outputs) for need in task.needs}
                running[pool.submit(_run_one, task, made, store, logs, listener)] = task
            if running:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    task = running.pop(future)
                    outcomes[task.name] = future.result()
                    listener.finished(outcomes[task.name])
            elif waiting and not any(
                all(n in outcomes for n in task.needs) for task in waiting.values()
            ):
                raise ReleaseError(f"tasks need what no task makes: {sorted(waiting)}")
    return outcomes


def _blocked(task: Task, outcomes: dict[str, Outcome]) -> Outcome | None:
    for need in task.needs:
        status = outcomes[need].status
        if status in (Status.FAILED, Status.SKIPPED):
            reason = f"{need} {'failed' if status is Status.FAILED else 'was skipped'}"
            if status is Status.SKIPPED:
                reason = f"{reason}: {outcomes[need].reason}"
            return Outcome(task.name, Status.SKIPPED, 0.0, reason=reason)
    return None


def task_key(task: Task, made: dict[str, list[Path]]) -> str:
    """Changes when the task's inputs, the outputs it reads, its facts or its code change."""
    function = task.run.func if isinstance(task.run, partial) else task.run
    code = Path(inspect.getsourcefile(function) or __file__)
    needs = {need: [digest(path) for path in paths] for need, paths in made.items()}
    return key_of(task.name, [code, *task.inputs], {"facts": task.facts, "needs": needs})


def _run_one(
    task: Task, made: dict[str, list[Path]], store: Store, logs: Path, listener: Listener
) -> Outcome:
    begun = time.monotonic()
    path = logs / f"{task.name}.log"
    try:
        key = task_key(task, made)
        if stamp := store.valid(task.name, key):
            return Outcome(task.name, Status.REUSED, 0.0, tuple(stamp.paths), log=path)
        store.forget(task.name)
        listener.started(task)
        with Log(path) as log:
            outputs = list(task.run(Context(log, made)))
        seconds = time.monotonic() - begun
        digests = {relative(output): digest(output) for output in outputs}
        store.write(task.name, Stamp(key, digests, round(seconds, 2)))
        return Outcome(task.name, Status.DONE, seconds, tuple(outputs), log=path)
    except SkipTask as reason:
        seconds = time.monotonic() - begun
        return Outcome(task.name, Status.SKIPPED, seconds, reason=str(reason), log=path)
    except Exception as error:
        seconds = time.monotonic() - begun
        return Outcome(task.name, Status.FAILED, seconds, reason=explain(error), log=path)


def explain(error: BaseException) -> str:
    """One text for a person; a full disk gets its remedy."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no space left on device ({error.filename}); free some and run the same again"
    if isinstance(error, ReleaseError):
        return str(error)
    from lltm_conda.builder import BuildError

    return str(error) if isinstance(error, BuildError) else f"{type(error).__name__}: {error}"
