"""Reason: the import compiles code, into a folder in which this user cannot write."""

from __future__ import annotations

import re

from ...judge import fixes
from ...judge.records import Finding
from ...judge.words import codes
from .case import Case

#: No access, no place left, a quota that is used up, a disk that is mounted read-only.
_CLOSED = re.compile(r"\[Errno (?:13|28|30|122)\] [^:]{1,100}: '(?P<path>/[^']{1,1000})'")


def cache_is_closed(case: Case) -> Finding | None:
    if not case.compiles:
        return None
    for error in case.errors:
        match = _CLOSED.search(error.message)
        if match is not None:
            return case.finding(
                codes.CACHE_CLOSED,
                f"the import compiles code into {match['path']}, where this user cannot write",
                observed=error.last_line,
                needed="a folder in which this user can write",
                fix=fixes.set_variable("TORCH_EXTENSIONS_DIR", "$(mktemp -d)"),
            )
    return None
