"""The torch for which a file was built, as its path or its package names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..records import BinaryRecord
from ..text import printable

Minor = tuple[int, int]


def built_for(binary: BinaryRecord) -> tuple[tuple[Minor, str], ...]:
    """The torch minors that the file's path or owner names, each with its source in words."""
    return (*_named_in(binary.path), *(binary.owner.built_for if binary.owner else ()))


def names_torch(path: Path) -> bool:
    """Whether a file's path names the torch that it was built for."""
    return any(_named_in(path))


def _named_in(path: Path) -> Iterator[tuple[Minor, str]]:
    """The torch minor that a path names, as `libx_torch29-cpu.so` and `torch-2.9/lib/x.so` do."""
    in_name = re.search(r"torch[_-]?(\d)[._]?(\d{1,2})(?!\d)", path.name)
    if in_name:
        yield (int(in_name[1]), int(in_name[2])), f"its name {printable(path.name)}"
        return
    for folder in path.parts[-3:-1]:
        in_folder = re.fullmatch(r"(?:py)?torch[_-]?(\d)\.(\d{1,9})[\w.+]*", folder)
        if in_folder:
            yield (int(in_folder[1]), int(in_folder[2])), f"its folder {printable(folder)}"
            return
