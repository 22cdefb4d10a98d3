"""Text from outside (names in files, paths, environment variables), made safe to print."""

from __future__ import annotations

import os


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
