"""The syntax of Python files of the environment, of which none is executed."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

from ...judge.target import Target
from ...judge.text import read_regular


def syntax_of(path: Path, target: Target) -> ast.Module:
    """The syntax of a module; that of an empty one if it cannot be read."""
    with suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.parse(read_regular(path, budget=target.budget))
    return ast.Module(body=[], type_ignores=[])
