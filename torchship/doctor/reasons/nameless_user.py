"""Reason: the code asks for the name of the user, who has none, as in a container with any number
for a user."""

from __future__ import annotations

import re

from ...judge import fixes
from ...judge.records import Finding
from ...judge.words import codes
from .case import Case

_NO_NAME = re.compile(r"getpwuid\(\): uid not found: (\d{1,20})|No username set in the environment")


def user_has_no_name(case: Case) -> Finding | None:
    for error in case.errors:
        match = _NO_NAME.search(error.message)
        if match is not None:
            name = case.name_of(case.raiser)
            who = f"number {match[1]}" if match[1] else "this user"
            return case.finding(
                codes.PYTHON_TOLD,
                f"{name} asks for the name of the user, and {who} has none, neither in "
                "/etc/passwd nor in USER",
                needed="a name of the user",
                fix=fixes.set_variable("USER", "somebody"),
            )
    return None
