"""Text from outside (names in files, paths, environment variables), made safe to print."""

from __future__ import annotations

import os
from collections.abc import Sequence


def printable(text: str | bytes | os.PathLike[str]) -> str:
    """The text on one line, with a backslash escape for every character that does not print.

    A newline could forge a line of the report and an escape sequence could rewrite the terminal. A
    byte that is not UTF-8 could not be printed at all.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    text = os.fspath(text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def some(names: Sequence[str], shown: int = 3) -> str:
    """The first names, and how many more there are: `a, b, c and 4 more`; long ones are cut."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(name[:200] for name in names[:shown]) + more
