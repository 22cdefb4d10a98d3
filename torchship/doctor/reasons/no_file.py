"""Reason: a package has files for several torches or CUDAs, and none for this one."""

from __future__ import annotations

from pathlib import Path

from ...judge.records import Finding
from ...judge.text import printable
from ..checks.packages import no_file
from .case import Case


def package_has_no_file(case: Case) -> Finding | None:
    """The error must name a file that is not there, of the kind that the package has."""
    texts = [error.message for error in case.errors] + [case.seen.output]
    for package in dict.fromkeys(filter(None, (case.raiser, case.subject))):
        finding = no_file(package, case.runtime, "\n".join(texts))
        if finding is None:
            continue
        start = Path(finding.needed.partition(" ")[0]).name.partition("*")[0].partition(".")[0]
        start = start.rstrip("0123456789")
        if start and any(start in text for text in texts):
            return finding._replace(why=printable(f"{package.name}: {finding.why}"))
    return None
