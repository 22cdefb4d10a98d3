"""Which files of this checkout hold the code of a function, found by reading its imports.

The `__init__.py` of a package counts only where the package itself is imported, not on the way to
one of its modules: it re-exports code that the function never calls.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from release import PACKAGE, REPO

# Top-level packages of this checkout, and the folder that each lies in.
PACKAGES = {"release": REPO / "scripts", "engine": PACKAGE}


def code_of(function: Callable[..., Any]) -> tuple[Path, ...]:
    """The function's own file and every file of this checkout that it imports, even indirectly."""
    inner = function.func if isinstance(function, partial) else function
    return closure(Path(inspect.getsourcefile(inner) or __file__))


@cache
def closure(file: Path) -> tuple[Path, ...]:
    found, waiting = {file}, [file]
    while waiting:
        new = _imported(waiting.pop()) - found
        found |= new
        waiting += new
    return tuple(sorted(found))


@cache
def _imported(file: Path) -> frozenset[Path]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [name for node in ast.walk(tree) for name in _names(node, file)]
    files = (path for name in names for path in (Path(f"{name}.py"), name / "__init__.py"))
    return frozenset(filter(Path.is_file, files))


def _names(node: ast.AST, file: Path) -> Iterator[Path]:
    """The modules that a statement may import, as paths without suffix."""
    if isinstance(node, ast.Import):
        yield from (_absolute(alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = file.parents[node.level - 1] if node.level else None
        parts = node.module.split(".") if node.module else []
        module = base.joinpath(*parts) if base else _absolute(node.module or "")
        yield module
        yield from (module / alias.name for alias in node.names)


def _absolute(name: str) -> Path:
    first, *rest = name.split(".")
    return PACKAGES.get(first, REPO / "outside").joinpath(first, *rest)
