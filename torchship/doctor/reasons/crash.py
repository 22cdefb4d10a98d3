"""Reason: the process died, and an object that it loaded does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import is_file
from ...judge.words import codes
from ..environment.owner import is_shared_object_name
from ..looking.seen import DIED
from .case import Case
from .linking import rejections_of_loading


def process_died(case: Case) -> Finding | None:
    if case.seen.outcome != DIED or case.seen.is_at_end:
        return None
    for path in dict.fromkeys(_suspects(case)):
        for finding in rejections_of_loading(case.judge(path)):
            return finding._replace(why=f"{case.seen.signal}: {finding.why}")
    if case.seen.signal == "SIGILL":
        return case.finding(
            codes.PROCESSOR_TOO_OLD,
            f"{_place(case)} uses an instruction that this processor does not have",
            needed="a processor with the instructions that the file was compiled for",
            fix=fixes.in_words("install a build for this processor, or compile it here"),
        )
    return None


def _suspects(case: Case) -> Iterator[Path]:
    """The object that was initialized last, the ones of the package, and the one to be loaded."""
    log = case.seen.log
    # After all libraries, the program itself is initialized.
    is_library = log is not None and is_shared_object_name(Path(log.last_initialized).name)
    if log is not None and is_library and is_file(log.last_initialized):
        yield Path(log.last_initialized)
    if case.seen.what.startswith("/"):
        yield Path(case.seen.what)
    yield from case.extensions


def _place(case: Case) -> str:
    log = case.seen.log
    return Path(log.last_initialized).name if log and log.last_initialized else case.seen.what
