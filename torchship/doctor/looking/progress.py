"""One line on a terminal that says what goes on, until the report comes."""

from __future__ import annotations

import shutil
import sys

from ...judge.text import printable

_START_OF_LINE = "\r\x1b[2K"


def show(text: str) -> None:
    """Say on standard error what goes on, in the place of what was said before; only on a
    terminal."""
    if sys.stderr.isatty():
        line = printable(f"{text} ...")[: shutil.get_terminal_size().columns - 1]
        print(f"{_START_OF_LINE}{line}", end="", file=sys.stderr, flush=True)


def clear() -> None:
    """Remove the line."""
    if sys.stderr.isatty():
        print(_START_OF_LINE, end="", file=sys.stderr, flush=True)
