"""Reason: Python was told to leave out the docstrings, and the code uses one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import read_regular
from ...judge.words import codes
from ..looking.seen import SeenError
from .case import Case

_VARIABLE = "PYTHONOPTIMIZE"


def docstrings_are_left_out(case: Case) -> Finding | None:
    level = os.environ.get(_VARIABLE, "")
    if not level.isdecimal() or int(level) < 2:
        return None
    for error in case.errors:
        if "NoneType" in error.message and "__doc__" in _line_of(case, error):
            name = case.name_of(case.raiser)
            return case.finding(
                codes.PYTHON_TOLD,
                f"{_VARIABLE}={level} makes Python leave out docstrings, and {name} uses one when "
                "it is imported",
                needed="docstrings",
                fix=fixes.unset(_VARIABLE),
            )
    return None


def _line_of(case: Case, error: SeenError) -> str:
    """The line of the source at which an error was raised."""
    frame = error.frames[-1] if error.frames else None
    if frame is None:
        return ""
    with suppress(OSError, IndexError):
        content = read_regular(Path(frame.file), budget=case.runtime.target.budget)
        return content.decode("utf-8", "replace").splitlines()[frame.line - 1]
    return ""
