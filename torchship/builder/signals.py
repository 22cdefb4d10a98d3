"""Lets a build end its compilers where a signal would end this process at once."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | signal.Handlers

#: The signals that end a build, each with the handler that a program has by default.
_DEFAULT_HANDLERS: Mapping[signal.Signals, Handler] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Turns the first SIGINT, SIGTERM or SIGHUP in a `with` block into an exception, and ignores
    all later ones: an impatient second Ctrl-C would stop the ending of the compilers.

    The exception is KeyboardInterrupt for SIGINT, else SystemExit. Only the main thread can
    set handlers. A handler that the program has set stays.
    """
    replaced: list[signal.Signals] = []

    def end(number: int, _: FrameType | None) -> None:
        for other in replaced:
            signal.signal(other, _ignore)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)  # as a shell reports a process that the signal ended

    if threading.current_thread() is threading.main_thread():
        for number, default in _DEFAULT_HANDLERS.items():
            if signal.getsignal(number) == default:
                replaced.append(number)
                signal.signal(number, end)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, _DEFAULT_HANDLERS[number])


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Lets a signal that comes in a `with` block count at the block's end.

    Amid the start of a process, the exception of a handler would leave behind a process that
    nobody knows. Only the main thread can set handlers; what is ignored stays ignored.
    """
    arrived: list[int] = []
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _DEFAULT_HANDLERS:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for late in arrived:
        signal.raise_signal(late)


def _ignore(number: int, _: FrameType | None) -> None:
    """Unlike SIG_IGN, this is not inherited by programs that the build starts."""
