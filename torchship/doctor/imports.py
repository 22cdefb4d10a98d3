"""Probe: what a package surely imports when it is imported itself; nothing is executed.

Only statements that run in any case count: none of a function, of an `if`, or of a `try` that
catches its own failure.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..judge.text import is_file, read_regular

_MAX_MODULES = 300
_MAX_SOURCE = 1 << 20

#: The names that are taken out of each module, by the module's first name.
Imported = Mapping[str, frozenset[str]]


def surely_imported(
    package: str, site: Path, wanted: Iterable[str], *, most_modules: int = _MAX_MODULES
) -> Imported:
    """Which of the wanted modules an import of `package`, in the folder `site`, imports.

    So many modules of the package itself are read, in the order in which they are imported.
    """
    looked_for = {*wanted}
    names: dict[str, set[str]] = {}
    queue = deque([package])
    seen = {package}
    while queue and looked_for - names.keys():
        module = queue.popleft()
        file = _file_of(module, site)
        if file is None:
            continue
        for target, taken in _statements(file, module):
            first = target.partition(".")[0]
            if first in looked_for:
                names.setdefault(first, set()).update(taken)
            if first != package:
                continue
            for inner in (target, *(f"{target}.{name}" for name in taken)):
                if inner not in seen and len(seen) < most_modules:
                    seen.add(inner)
                    queue.append(inner)
    return {module: frozenset(taken) for module, taken in names.items()}


def _file_of(module: str, site: Path) -> Path | None:
    place = site.joinpath(*module.split("."))
    for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if is_file(file):
            return file
    return None


def _statements(file: Path, module: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(module, names taken out of it) of each import that runs in any case."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(read_regular(file, _MAX_SOURCE))
        is_package = file.name == "__init__.py"
        parent = module if is_package else module.rpartition(".")[0]
        for statement in _executed(tree.body):
            if isinstance(statement, ast.Import):
                yield from ((alias.name, ()) for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom):
                target = _absolute(statement, parent)
                yield target, tuple(alias.name for alias in statement.names)


def _absolute(statement: ast.ImportFrom, parent: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = parent.split(".")
    base = parts[: len(parts) - statement.level + 1]
    return ".".join([*base, *filter(None, [statement.module])])


def _executed(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run whenever a module is imported."""
    for statement in body:
        if isinstance(statement, ast.Try):
            if not statement.handlers:
                yield from _executed(statement.body)
            yield from _executed(statement.finalbody)
        elif isinstance(statement, ast.With | ast.ClassDef):
            yield from _executed(statement.body)
        else:
            yield statement
