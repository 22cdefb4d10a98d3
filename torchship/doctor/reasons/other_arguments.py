"""Reason: a function of another distribution does not take the arguments that it is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ...judge.records import Finding
from ...judge.text import printable
from ...judge.words import codes
from ..environment.syntax import syntax_of
from ..looking.seen import SeenError
from .case import Case
from .missing_module import other_release

_REFUSED = re.compile(
    r"(?P<function>[\w.]{1,200})\(\) "
    r"(?:got an unexpected keyword argument '(?P<argument>\w{1,200})'"
    r"|missing \d+ required .{0,30}arguments?: |takes .{1,60} positional arguments? but \d+)"
)


def arguments_do_not_fit(case: Case) -> Finding | None:
    """The caller was written for another release of what it calls."""
    for error in case.errors:
        match = _REFUSED.search(error.message) if error.type == "TypeError" else None
        if match is None or not error.frames:
            continue
        asking = case.catalog.of_file(error.frames[-1].file)
        owners = (case.catalog.of_module(module) for module in _called(case, error, match))
        owner = next((one for one in owners if one not in (None, asking)), None)
        if asking is None or owner is None:
            continue
        what = f"takes no {match['argument']}" if match["argument"] else "takes other arguments"
        finding = other_release(case, asking, owner, f"{what} in {printable(match['function'])}()")
        if finding is not None and finding.code == codes.REQUIREMENT_NOT_MET:
            return finding
    return None


def _called(case: Case, error: SeenError, match: re.Match[str]) -> Iterator[str]:
    """The modules out of which the line that failed can have the function."""
    frame = error.frames[-1]
    tree = syntax_of(Path(frame.file), case.runtime.target)
    parts = match["function"].split(".")
    wanted = {parts[-2] if len(parts) > 1 and parts[-1] == "__init__" else parts[-1]}
    modules = dict(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _covers(node, frame.line):
            root = _root(node.func)
            if _last_name(node.func) in wanted and root in modules:
                yield modules[root]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a module imports, and the module of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                name = one.asname or one.name.partition(".")[0]
                yield name, one.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                yield one.asname or one.name, node.module


def _covers(node: ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
