"""Reason: two libraries of one process register the same operators."""

from __future__ import annotations

import re
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.words import codes
from .case import Case

_TWICE = re.compile(
    r"[Oo]nly a single TORCH_LIBRARY can be used to register the namespace (\w+)"
    r"|Tried to register an operator \((\w+)::"
    r"|same name and the same overload name multiple times"
)


def operators_are_registered_twice(case: Case) -> Finding | None:
    texts = [error.message for error in case.errors]
    match = next(filter(None, map(_TWICE.search, [*texts, case.seen.output])), None)
    if match is None:
        return None
    namespace = next(filter(None, match.groups()), "")
    copies = _copies(case)
    what = f"the operators of {namespace}" if namespace else "an operator"
    where = f": {copies[0]} and {copies[1]}" if len(copies) > 1 else ""
    return case.finding(
        codes.REGISTERED_TWICE,
        f"{what} are registered twice in one process{where}",
        needed="one copy of the library that registers them",
        fix=fixes.in_words("remove one of the two copies, or do not import both into one process"),
    )


def _copies(case: Case) -> list[str]:
    """Two mapped files of one name, in two folders; an empty list if there are none."""
    first: dict[str, str] = {}
    for path in case.seen.mapped:
        name = Path(path).name
        other = first.setdefault(name, path)
        if other != path and any(Path(extension).name == name for extension in case.extensions):
            return [other, path]
    return []
