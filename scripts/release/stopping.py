"""Ctrl-C and SIGTERM.

A signal that comes just as the main thread goes to sleep does not wake it, and an exception that a
handler raises anywhere may leave a lock taken that a worker waits for. So while steps run in
threads, a signal only leaves word, and who waits for them looks again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import TypeVar

from release.leftovers import end_children

Result = TypeVar("Result")
LOOK = 0.2  # seconds between two looks


class Stop:
    """Whether the steps that run are to be stopped."""

    def __init__(self) -> None:
        self.asked = False

    def next_of(self, running: Collection[Future[Result]]) -> set[Future[Result]]:
        """Waits until some of `running` are over, and returns those.

        Raises:
            KeyboardInterrupt: a signal came. All are over by then, as what they wait for is ended.
        """
        while True:
            finished, _ = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
            if self.asked:
                break
            if finished:
                return finished
        for future in running:
            future.cancel()
        end_children()
        while wait(running, timeout=LOOK).not_done:
            end_children()  # a step may have started another
        raise KeyboardInterrupt


_stop: Stop | None = None


@contextmanager
def deferred() -> Iterator[Stop]:
    """Within, a first signal only leaves word; behind, it is a KeyboardInterrupt."""
    global _stop
    _stop = stop = Stop()
    try:
        yield stop
    finally:
        _stop = None
    if stop.asked:
        raise KeyboardInterrupt


def interrupt(*_: object) -> None:
    """The handler: nothing is begun any more, and what runs fails, since what it waits for ends.

    Raises:
        KeyboardInterrupt: at once where no steps run in threads, or where a signal came before.
    """
    if _stop is not None and not _stop.asked:
        _stop.asked = True
        return
    end_children()
    raise KeyboardInterrupt
