"""Reason: Python was told to raise warnings as errors, and the code warns when it is imported."""

from __future__ import annotations

import os

from ...judge import fixes
from ...judge.records import Finding
from ...judge.words import codes
from .case import Case

_VARIABLE = "PYTHONWARNINGS"


def warning_is_an_error(case: Case) -> Finding | None:
    told = os.environ.get(_VARIABLE, "")
    for error in case.errors:
        if "error" in told and error.type.endswith("Warning"):
            name = case.name_of(case.raiser)
            return case.finding(
                codes.PYTHON_TOLD,
                f"{_VARIABLE}={told} makes Python raise warnings as errors, and {name} warns when "
                f"it is imported: {error.last_line.strip().partition(chr(10))[0][:200]}",
                observed=f"{_VARIABLE}={told}",
                needed="warnings that are no errors",
                fix=fixes.unset(_VARIABLE),
            )
    return None
