"""Ends the processes of a run: after a signal, and those that a killed run left running.

A signal that arrives just before the main thread sleeps does not wake it, and an exception raised
in a handler may keep a lock that a worker waits for. So while steps run in threads, the
handler sets a flag and the main thread polls it.

`kill -9` ends only the tool; compilers and installers continue, and could write into the files of
the next run. Every process of a run has the build folder in its environment, by which the next run
finds it. A command that is just being forked gets that environment only with its exec; until then
it holds the tool's lock, which a fork inherits and an exec releases. So the tool starts commands
with `close_fds=False`: closing the descriptors first would release the lock too early. The holder
of the lock finds all of these processes.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

import psutil

MARK = "RELEASE_BUILD"
POLL = 0.2  # seconds
PATIENCE = 20.0  # seconds to wait for a killed process to end


def end_leftovers(build: Path, tell: Callable[[str], None]) -> int:
    """Kills the processes of earlier runs for `build`; returns how many there were.

    Only the holder of the folder's lock may call this: then no other run uses the folder.
    """
    ended = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    family = len(ended)

    def works_for_build(process: psutil.Process) -> bool:
        if process.pid in ended:
            return False
        environment = process.info["environ"] or {}  # None for the process of another user
        # The compilers that sccache's daemon starts have the environment of their build.
        daemon = process.info["name"] == "sccache" and len(process.info["cmdline"] or ()) == 1
        return environment.get(MARK) == str(build) and not daemon

    # Repeat until there are none: a process may have started another one meanwhile.
    while left := [*filter(works_for_build, psutil.process_iter(["name", "environ", "cmdline"]))]:
        for process in left:
            name = process.info["name"]
            tell(f"ending process {process.pid} ({name}), which a killed run left behind")
            _kill(process)
        psutil.wait_procs(left, timeout=PATIENCE)
        ended |= {process.pid for process in left}
    return len(ended) - family


def end_children() -> None:
    """Kills all processes that this one started, without waiting for them."""
    for process in psutil.Process().children(recursive=True):
        _kill(process)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()


class Stop:
    """Whether a signal asked the running steps to stop."""

    asked = False

    def next_of(self, running: Collection[Future]) -> set[Future]:
        """Waits until some of `running` have ended, and returns those.

        After a signal it kills the commands, waits for all steps and raises KeyboardInterrupt.
        """
        while True:
            finished, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
            if self.asked:
                break
            if finished:
                return finished
        for future in running:
            future.cancel()
        end_children()
        while wait(running, timeout=POLL).not_done:
            end_children()  # a step may have started another
        raise KeyboardInterrupt


_stop: Stop | None = None


@contextlib.contextmanager
def deferred() -> Iterator[Stop]:
    """Within the block, the first signal only sets a flag; the end raises KeyboardInterrupt."""
    global _stop
    _stop = stop = Stop()
    try:
        yield stop
    finally:
        _stop = None
    if stop.asked:
        raise KeyboardInterrupt


def interrupt(*_: object) -> None:
    """The signal handler; interrupts at once if no steps run in threads, or on a second signal."""
    if _stop is not None and not _stop.asked:
        _stop.asked = True
        return
    end_children()
    raise KeyboardInterrupt
