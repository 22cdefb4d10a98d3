"""Lets a build end its compilers where a signal would end this process at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into SystemExit in a `with` block.

    Only the main thread can set handlers. A handler that the program has set stays.
    """
    replaced: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _exit)
                replaced.append(number)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # as a shell reports a process that the signal ended
