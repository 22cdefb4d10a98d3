"""Reason: a folder that a removed package left behind is taken for the package."""

from __future__ import annotations

import re
from pathlib import Path

from ...judge.records import REJECTED, Finding, Runtime
from ...judge.text import printable
from ...judge.words import codes
from ..environment.leftover import leftover
from ..fixes.mending import replace_leftover
from .case import Case

_MISSED = re.compile(
    r"module '(?P<of>\w{1,200})' has no attribute"
    r"|cannot import name '\w{1,200}' from '(?P<from>\w{1,200})' \(unknown location\)"
    r"|No module named '(?P<in>\w{1,200})\.\w"
)


def folder_is_left_over(case: Case) -> Finding | None:
    for error in case.errors:
        match = _MISSED.search(error.message)
        name = next(filter(None, match.groups()), "") if match else ""
        folder = leftover(case.runtime.target, name, is_missed=True) if name else None
        if folder is not None:
            return of_leftover(folder, case.runtime)
    return None


def of_leftover(folder: Path, runtime: Runtime) -> Finding:
    """The finding on such a folder."""
    why = (
        f"{folder} is left over from a package that was removed: it has no __init__.py, and no "
        f"installed package lists it. Python takes it for an empty package, which hides that "
        f"{folder.name} is not installed"
    )
    return Finding(
        dimension="import",
        status=REJECTED,
        code=codes.FILE_OF_ANOTHER_BUILD,
        observed=printable(str(folder)),
        needed=f"an installed {folder.name}",
        why=printable(why),
        fix=replace_leftover(folder, runtime),
    )
