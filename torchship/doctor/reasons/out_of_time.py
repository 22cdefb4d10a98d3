"""Reason: the import does not end; where it waits is all that is known."""

from __future__ import annotations

from ...judge import fixes
from ...judge.records import UNKNOWN, Finding
from ...judge.words import codes
from ..looking.seen import OUT_OF_TIME
from .case import Case


def import_does_not_end(case: Case) -> Finding | None:
    if case.seen.outcome != OUT_OF_TIME:
        return None
    frame = next(iter(case.frames()), None)
    where = f" in {frame.function} ({frame.file}:{frame.line})" if frame else ""
    if frame is not None and frame.file.endswith("file_baton.py"):
        return case.finding(
            codes.STALE_LOCK,
            "it waits for the lock of a build, which may be dead",
            observed=f"{frame.file}:{frame.line}",
            fix=fixes.in_words("remove the lock that torch-doctor names"),
        )
    finding = case.finding(
        codes.IMPORT_DOES_NOT_END,
        f"the import had not ended after {case.seen.seconds:.0f} s{where}",
        fix=fixes.advice("if it only takes long, give it more: --seconds 300"),
    )
    return finding._replace(status=UNKNOWN)
