"""Runs tasks: each after the tasks that it needs, several at a time, only if something changed.

A large output that is quick to make again (an environment with a CUDA torch) is *temporary*: it is
deleted after the last task that reads it. Its stamp stays valid, and the output is made again when
a new reader has to run.
"""

import errno
import os
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from engine.builder import BuildError
from release import BUILD, PROJECT, ReleaseError
from release.processes import deferred
from release.shell import Log, redacted
from release.store import Stamp, Store, code_of, digest, key_of, relative
from release.tasks import GOOD, Context, Outcome, SkipTask, Status, Task


def run_tasks(
    tasks: Sequence[Task],
    store: Store,
    logs: Path,
    listener: Any,
    jobs: int = 1,
    room: int | None = None,
) -> dict[str, Outcome]:
    """Runs every task that it can, and returns the outcomes by the tasks' names.

    A failure stops only the tasks that need the failed one. After a full disk no task is started.
    A task with temporary outputs waits if these would exceed `room` bytes on the disk, unless no
    other task could run. `listener` is told of every task, like :class:`progress.Reporter`.
    """
    run = _Run(tasks, store, logs, listener, max(1, jobs))
    running: dict[Future[Outcome], Task] = {}
    with deferred() as stop, ThreadPoolExecutor(max_workers=run.jobs) as pool:
        while run.waiting or running:
            for task in run.startable(run.jobs - len(running), room):
                run.waiting.remove(task)
                if outcome := run.blocked(task):
                    run.finish(task, outcome)
                else:
                    running[pool.submit(run.one, task)] = task
            if running:
                for future in stop.next_of(running):
                    run.finish(running.pop(future), future.result())
            elif run.waiting and not any(map(run.ready, run.waiting)):
                names = sorted(map(str, run.waiting))
                raise ReleaseError(f"tasks need tasks that are not in this run: {names}")
            run.delete_temporary()
    return run.outcomes


class _Run:
    """The state of one run: waiting tasks, outcomes, and the temporary outputs on the disk."""

    def __init__(
        self, tasks: Sequence[Task], store: Store, logs: Path, listener: Any, jobs: int
    ) -> None:
        self.waiting = list(tasks)
        self.outcomes: dict[str, Outcome] = {}
        self.store, self.logs, self.listener, self.jobs = store, logs, listener, jobs
        self._full = False
        self._used = 0  # bytes of temporary outputs
        self._there: set[Task] = set()
        self._temporary = [task for task in tasks if task.temporary]
        self._locks = {task: threading.Lock() for task in self._temporary}
        self._readers = {t: {r.name for r in tasks if t in r.needs} for t in self._temporary}

    def ready(self, task: Task) -> bool:
        return all(before.name in self.outcomes for before in (*task.needs, *task.after))

    def startable(self, workers: int, room: int | None) -> list[Task]:
        """At most `workers` tasks that may start now; their disk space counts as used."""
        ready = [task for task in self.waiting if self.ready(task)]
        chosen: list[Task] = []
        for task in ready:
            if len(chosen) == workers:
                break
            size = task.disk if task.temporary else 0
            if not size or room is None or self._used + size <= room:
                self._used += size
                chosen.append(task)
        if ready and not chosen and workers == self.jobs:
            # No running task could make room, so it exceeds the limit rather than stop.
            self._used += ready[0].disk
            chosen = ready[:1]
        return chosen

    def blocked(self, task: Task) -> Outcome | None:
        """The outcome of a task that cannot run, with the first cause of the chain; else None."""
        reasons = ["not started: no space left"] if self._full else []
        for need in (self.outcomes[before.name] for before in task.needs):
            if need.status is Status.FAILED:
                reasons.append(f"{need.task} failed")
            elif need.status is Status.SKIPPED:
                why = f"{need.task} was skipped: {need.reason}"
                reasons.append(need.reason if need.blocked else why)
        if not reasons:
            return None
        return Outcome(task.name, Status.SKIPPED, 0, reason=reasons[0], blocked=True)

    def finish(self, task: Task, outcome: Outcome) -> None:
        self.outcomes[task.name] = outcome
        self._full = self._full or outcome.disk_full
        self.listener.finished(task, outcome)

    def one(self, task: Task) -> Outcome:
        """Runs a task, or finds that its outputs are still valid."""
        begun = time.monotonic()
        path = self.logs / f"{task.name}.log"

        def ended(status: Status, **facts: Any) -> Outcome:
            seconds = 0.0 if status is Status.REUSED else time.monotonic() - begun
            return Outcome(task.name, status, seconds, log=path, **facts)

        try:
            key = self._key(task)
            status, stamp = Status.REUSED, self._valid(task, key)
            if stamp is None:
                self.store.forget(task.name)
                self.listener.started(task)
                with Log(path) as log:
                    for need in task.needs:
                        self._bring_back(need, log)
                    status, stamp = Status.DONE, self._do(task, key, log)
            made, digests = tuple(stamp.paths), tuple(stamp.outputs.values())
            return ended(status, outputs=made, digests=digests, took=stamp.seconds)
        except SkipTask as reason:
            return ended(Status.SKIPPED, reason=redacted(str(reason)))
        except Exception as error:
            return ended(Status.FAILED, reason=explain(error), disk_full=is_disk_full(error))

    def _before(self, task: Task) -> tuple[dict[Task, Outcome], frozenset[Task]]:
        """The good outcomes of the tasks that it waited for, and the tasks that failed."""
        before = {t: self.outcomes[t.name] for t in (*task.needs, *task.after)}
        failed = frozenset(t for t, o in before.items() if o.status is Status.FAILED)
        return {t: o for t, o in before.items() if o.status in GOOD}, failed

    def _key(self, task: Task) -> str:
        """A hash of the task's code, arguments, inputs and facts, and of the outputs it reads."""
        good, failed = self._before(task)
        facts = {
            "arguments": getattr(task.run, "keywords", {}),
            "facts": task.facts,
            "project": PROJECT._asdict(),
            "read": {before.name: outcome.digests for before, outcome in good.items()},
            "failed": sorted(map(str, failed)),
        }
        return key_of(task.name, [*code_of(task.run), *task.inputs], facts)

    def _valid(self, task: Task, key: str) -> Stamp | None:
        stamp = self.store.read(task.name)
        if stamp is None or stamp.key != key or not stamp.intact(without=task.temporary):
            return None
        if not task.temporary or stamp.intact(quick=task.temporary):
            self._there.add(task)
        return stamp

    def _do(self, task: Task, key: str, log: Log) -> Stamp:
        begun, (good, failed) = time.monotonic(), self._before(task)
        made = {before: outcome.outputs for before, outcome in good.items()}
        outputs = Context(log, made, failed, self.jobs).run(task)
        took = round(time.monotonic() - begun, 2)
        digests = {relative(path): digest(path, quick=path in task.temporary) for path in outputs}
        self.store.write(task.name, stamp := Stamp(key, digests, took))
        self._there.add(task)
        return stamp

    def _bring_back(self, task: Task, log: Log) -> None:
        """Makes a deleted temporary output again; several readers may call it at the same time."""
        if not task.temporary:
            return
        with self._locks[task]:
            if task in self._there:
                return
            log.write(f"{task.name} was deleted to save space and is made again")
            for need in task.needs:
                self._bring_back(need, log)
            self._do(task, self._key(task), log)

    def delete_temporary(self) -> None:
        for task in list(self._temporary):
            if task.name in self.outcomes and self._readers[task] <= self.outcomes.keys():
                self._temporary.remove(task)
                self._used -= task.disk
                for folder in task.temporary:
                    shutil.rmtree(folder, ignore_errors=True)


def is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return os.strerror(errno.ENOSPC) in str(error)


def explain(error: BaseException) -> str:
    """The message for an error, without secrets; for a full disk it also says what to do."""
    if not is_disk_full(error):
        known = isinstance(error, (ReleaseError, BuildError))
        return redacted(str(error) if known else f"{type(error).__name__}: {error}")
    name = getattr(error, "filename", None)
    where = Path(name or BUILD)
    while not where.is_dir():
        where = where.parent
    what = f" for {name}" if name else "" if isinstance(error, OSError) else f" ({error})"
    free = f"{shutil.disk_usage(where).free / 1e6:.0f} MB are free in {where}"
    text = f"no space left on device{what}: {free}; free some and run the same again: what is"
    return f"{text} finished is kept"
