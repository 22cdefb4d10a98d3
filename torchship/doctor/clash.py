"""Two packages that each can be imported, and not both: sought where a command failed in an import.

What the command imported before is read out of its script; whether that matters is tried.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ..judge import fixes
from ..judge.records import REJECTED, Finding, Runtime
from ..judge.text import printable
from ..judge.words import codes, messages
from .environment.syntax import syntax_of
from .looking.look import look_after
from .looking.processes import Python
from .looking.seen import Seen, SeenFrame
from .reasons.pasted import seen_in

_MOST_TRIES = 8


def find_clash(output: str, python: Python, runtime: Runtime) -> Finding | None:
    """What was imported first, and makes an import fail that works alone. Raises OSError if the
    Python cannot be started."""
    seen = seen_in(messages.lines_of(output))
    frames = _frames(seen) if seen else ()
    if not frames:
        return None
    script, line = Path(frames[0].file), frames[0].line
    before, second = _imports_up_to(script, line, runtime)
    if not second or not before:
        return None
    python = python._replace(folder=script.parent)
    if not look_after((), second, python).works or look_after(before, second, python).works:
        return None
    for first in before[:_MOST_TRIES]:
        together = look_after((first,), second, python)
        if not together.works:
            return _finding(first, second, together, look_after((second,), first, python))
    return None


def _frames(seen: Seen) -> tuple[SeenFrame, ...]:
    return seen.frames or next((one.frames for one in seen.errors if one.frames), ())


def _imports_up_to(script: Path, line: int, runtime: Runtime) -> tuple[list[str], str]:
    """The modules that a script imports before a line, and the one that it imports there."""
    before: dict[str, None] = {}
    for node in syntax_of(script, runtime.target).body:
        is_there = node.lineno <= line <= (node.end_lineno or node.lineno)
        names = [*_names(node)]
        if is_there and names:
            return [name for name in before if name != names[-1]], names[-1]
        before.update(dict.fromkeys(names if node.lineno < line else ()))
    return [], ""


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module


def _finding(first: str, second: str, together: Seen, reverse: Seen) -> Finding:
    order = f"import {second} before {first}, which works, or " if reverse.works else ""
    return Finding(
        dimension="import",
        status=REJECTED,
        code=codes.CLASH,
        observed=printable(together.last_line)[:400],
        needed="",
        why=f"import {second} works alone, and fails after import {first}: "
        f"{printable(together.last_line)[:200]}",
        fix=fixes.in_words(
            f"{order}do not import both into one process, and report it to the authors of both",
        ),
    )
