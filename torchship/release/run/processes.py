"""Ends the processes of a run after a signal, and the processes that a killed run left running.

A signal that arrives just before the main thread sleeps does not wake that thread, and an
exception from a signal handler may leave a lock held for which a worker waits. So while
steps run in threads, the first signal only sets a flag, which the main thread polls.

`kill -9` ends only the tool. Compilers and installers continue, and could write into the
files of the next run, which finds them by the build folder in their environment. A forked
process has that environment from its exec on, and until then holds the tool's lock:
`Log.run` starts commands with `close_fds=False`, as closing all descriptors would release
the lock before the exec.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TypeVar

import psutil

Result = TypeVar("Result")

MARK = "RELEASE_BUILD"
POLL = 0.2  # seconds
PATIENCE = 20.0  # seconds to wait for a killed process to end


def end_leftovers(build: Path, tell: Callable[[str], None]) -> None:
    """Kills the processes that earlier runs for `build` left, and calls `tell` for each of them.

    The caller must hold the folder's lock, so that no other run uses the folder.
    """
    ended = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}

    def works_for_build(process: psutil.Process) -> bool:
        if process.pid in ended:
            return False
        environment = process.info["environ"] or {}  # None for a process of another user
        # sccache's daemon stays, but not its compilers, which have the environment of their
        # build.
        daemon = process.info["name"] == "sccache" and len(process.info["cmdline"] or ()) == 1
        return environment.get(MARK) == str(build) and not daemon

    # A process may have started another meanwhile, so the loop repeats until none is left.
    while left := [*filter(works_for_build, psutil.process_iter(["name", "environ", "cmdline"]))]:
        for process in left:
            name = process.info["name"]
            tell(f"ending process {process.pid} ({name}), which a killed run left behind")
            _kill(process)
        psutil.wait_procs(left, timeout=PATIENCE)
        ended |= {process.pid for process in left}


def end_children() -> None:
    """Kills all descendants of this process, without waiting for their end."""
    for process in psutil.Process().children(recursive=True):
        _kill(process)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()


class Stop:
    """Whether a signal asked the running steps to stop."""

    is_requested = False

    def next_of(self, running: Collection[Future[Result]]) -> set[Future[Result]]:
        """Waits until at least one of `running` has ended, and returns all that have ended.

        After a signal, kills the commands, waits for all steps and raises KeyboardInterrupt.
        """
        while not self.is_requested:
            finished, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
            if finished and not self.is_requested:
                return finished
        for future in running:
            future.cancel()
        end_children()
        while wait(running, timeout=POLL).not_done:
            end_children()  # a step may have started another command
        raise KeyboardInterrupt


_stop: Stop | None = None


@contextlib.contextmanager
def deferred() -> Iterator[Stop]:
    """The first signal in the block only sets a flag.

    KeyboardInterrupt follows after the block.
    """
    global _stop
    _stop = stop = Stop()
    try:
        yield stop
    finally:
        _stop = None
    if stop.is_requested:
        raise KeyboardInterrupt


def interrupt(*_: object) -> None:
    """Sets an unset flag of `deferred`, or else kills all commands and raises KeyboardInterrupt."""
    if _stop is not None and not _stop.is_requested:
        _stop.is_requested = True
        return
    end_children()
    raise KeyboardInterrupt


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Lets SIGINT and SIGTERM call `interrupt` in a `with` block, and then what they did before."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
