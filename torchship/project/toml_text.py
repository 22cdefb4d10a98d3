"""Replaces tables of a pyproject.toml, and leaves all others as their author wrote them."""

import re
from collections.abc import Iterable, Iterator

_HEADER = re.compile(r"^\[\[?\s*([\w.\"'-]+)\s*\]\]?\s*(#.*)?$")


def kept_tables(content: str, replaced: Iterable[str]) -> Iterator[str]:
    """The text of each table whose name is none of `replaced`, nor below one of them."""
    names = tuple(replaced)
    for name, text in _tables(content):
        if name and not any(name == one or name.startswith(f"{one}.") for one in names):
            yield text.strip("\n") + "\n"


def table(content: str, name: str) -> str:
    """The text of one table, "" if there is none."""
    return "".join(text for one, text in _tables(content) if one == name)


def table_names(content: str) -> list[str]:
    return [name for name, _ in _tables(content) if name]


def _tables(content: str) -> Iterator[tuple[str, str]]:
    """The tables by name; what stands before the first has the name ""."""
    name = ""
    lines: list[str] = []
    quotes = ""
    for line in content.splitlines(keepends=True):
        header = None if quotes else _HEADER.match(line)
        if header:
            comments = _comments_above(lines)
            yield name, "".join(lines)
            name = header[1].replace('"', "").replace("'", "")
            lines = comments
        for mark in ('"""', "'''"):
            if line.count(mark) % 2 and quotes in ("", mark):
                quotes = "" if quotes else mark
        lines.append(line)
    yield name, "".join(lines)


def _comments_above(lines: list[str]) -> list[str]:
    """Takes the comments off the end, which belong to the header that follows."""
    count = 0
    while count < len(lines) and lines[-1 - count].startswith("#"):
        count += 1
    taken = lines[len(lines) - count :]
    del lines[len(lines) - count :]
    return taken
