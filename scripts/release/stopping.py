"""Ctrl-C and SIGTERM.

A signal that arrives just before the main thread sleeps does not wake it, and an exception raised
in a handler may keep a lock that a worker waits for. So while steps run in threads, the
handler sets a flag and the main thread polls it.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager

from release.leftovers import end_children

POLL = 0.2  # seconds


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


@contextmanager
def deferred() -> Iterator[Stop]:
    """Inside, the first signal only sets a flag; it becomes a KeyboardInterrupt at the end."""
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
