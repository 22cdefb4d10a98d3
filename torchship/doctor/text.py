"""Text from outside (names in files, paths, environment variables), made safe; small JSON files."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def printable(text: str | bytes | os.PathLike[str]) -> str:
    """The text on one line, with a backslash escape for every character that does not print.

    A newline could forge a line of the report, and an escape sequence could rewrite the terminal.
    For a byte that is not UTF-8, `print` would raise.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    text = os.fspath(text)
    if text.isprintable():
        return text
    escapes = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escapes)


def some(names: Sequence[str], shown: int = 3) -> str:
    """The first names and the number of the others: `a, b, c and 4 more`. Long names are cut."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(name[:200] for name in names[:shown]) + more


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file cannot be read or holds no object."""
    with suppress(OSError, ValueError, RecursionError):
        data = json.loads(path.read_bytes())
        return data if isinstance(data, dict) else {}
    return {}
