"""What is said where no reason is known: what was seen, what it is not, and what to report."""

from __future__ import annotations

from collections.abc import Iterator

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import some
from ...judge.words import codes
from .case import Case
from .unmet import packages_on_the_way, unmet_of


def reason_is_not_known(case: Case) -> Finding:
    frame = next((frame for frame in case.frames() if not frame.file.startswith("<")), None)
    package = case.raiser
    name = case.name_of(package)
    where = f" ({frame.file}:{frame.line})" if frame else ""
    if case.seen.is_at_end:
        log = case.seen.log
        of_what = f" in {log.last_finalized}" if log and log.last_finalized else ""
        why = (
            f"import {case.seen.what} works, and the process dies of {case.seen.signal} when it "
            f"ends, in code that runs then{of_what}"
        )
    elif case.seen.outcome == "died":
        log = case.seen.log
        last = f", after {log.last_initialized} was initialized" if log else ""
        why = f"the process died of {case.seen.signal} in {name}{where}{last}"
    elif case.seen.outcome == "ended":
        said = case.seen.output.strip().rpartition("\n")[2]
        words = f"; it says: {said[:200]}" if said else ", without an error"
        why = f"{name} ends the process when it is imported{words}"
    elif case.errors and case.errors[0].type == "SystemExit":
        said = case.seen.output.strip().rpartition("\n")[2]
        words = f"; it says: {said[:200]}" if said else ""
        why = f"{name} ends the process by itself when it is imported{where}{words}"
    else:
        why = f"the error comes out of {name}{where}"
    excluded = ["hidden or damaged files", "what the dynamic linker wants"]
    unmet = [*_unmet(case)]
    if not unmet:
        excluded.append("missing requirements")
    not_so = f"; it may be that {some(unmet, 2)}, which is not so here" if unmet else ""
    return case.finding(
        codes.REASON_NOT_KNOWN,
        f"{why}{not_so}; excluded: {some(excluded)}",
        fix=fixes.advice(
            f"report it to {_who(case)}, with the whole traceback and the output of --json",
        ),
    )


def _unmet(case: Case) -> Iterator[str]:
    """What the packages on the way to the error require, and is not so."""
    for package in dict.fromkeys(packages_on_the_way(case)):
        for requirement in unmet_of(case, package):
            yield f"{package.name} requires {requirement.text}"


def _who(case: Case) -> str:
    """To whom to report it: the package that was imported, also where what it calls objects."""
    package = case.subject or case.raiser
    return package.name if package else "its authors"
