"""What was seen of each object and what was read of it, to what is said: a look decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..judge.project import Record
from ..judge.records import NOTE, NOTHING, REJECTED, UNKNOWN, Finding, Verdict
from ..judge.words import codes
from ..judge.words.codes import Code
from .looking.seen import HIDDEN, OUT_OF_TIME, Looked, Seen

#: Findings that stand for an object that was seen to load: they are about what it does later.
#: Objects of another class layout load, and then compute something else.
STAND: frozenset[Code] = codes.RUN_LATER | {codes.OTHER_TORCH}

#: What a part of a package may lack and be optional: libraries that the system brings.
_OF_SYSTEM = (codes.LIBRARY_MISSING,)


#: What is said of an object, a package or a folder.
WORKS, FAILS, CANNOT_BE_TOLD, REMARK = "works", "fails", "unknown", "note"


class Decision(Record, kw_only=True):
    """What is said of an object."""

    path: Path
    state: str  #: `WORKS`, `FAILS`, `CANNOT_BE_TOLD` or `REMARK`
    finding: Finding | None  #: the cause, or a remark
    decided_by: str  #: "look" or "reading"
    seen: Seen | None
    read: Verdict


class Decider(Record, kw_only=True):
    """Decides for the objects of an environment that was looked at."""

    looked: Looked
    module_of: Mapping[Path, str]
    explain: Callable[[Seen, Path], Finding]  #: the reason for which an object did not load
    lacking: Mapping[Path, Path] = NOTHING  #: the objects behind a module that has none
    explain_hidden: Callable[[Path, Seen], Finding]  #: why such an object is not reached

    def decide(self, verdicts: Iterable[Verdict]) -> list[Decision]:
        """A decision for each verdict. What was not tried is decided by reading."""
        decisions = [self._decide(verdict) for verdict in verdicts]
        loading = {one.path for one in decisions if one.state == WORKS}
        return [self._as_part(one, loading) for one in decisions]

    def _decide(self, verdict: Verdict) -> Decision:
        path = verdict.binary.path
        module = self.module_of.get(path, "")
        package = self.looked.packages.get(module)
        seen = self.looked.extensions.get(path)
        if seen is None and package is not None and is_mapped(path, package):
            return self._of_loaded(verdict, package)
        if seen is None and package is not None and path in self.lacking:
            return _by_look(verdict, FAILS, self.explain_hidden(path, package), package)
        if seen is None:
            return decision_by_reading(verdict)
        if seen.works:
            return self._of_loaded(verdict, seen)
        if seen.outcome == HIDDEN:
            finding = _note(
                codes.HIDDEN_COPY, f"Python takes {seen.file} instead, and never reaches this file"
            )
            return _by_look(verdict, REMARK, finding, seen)
        finding = self.explain(seen, path)
        state = CANNOT_BE_TOLD if seen.outcome == OUT_OF_TIME else FAILS
        return _by_look(verdict, state, finding, seen)

    def _of_loaded(self, verdict: Verdict, seen: Seen) -> Decision:
        """An object that was seen to load works, but for what was read of its later life."""
        standing = [f for f in verdict.findings if f.status == REJECTED and f.code in STAND]
        if standing:
            return _by_look(verdict, FAILS, standing[0], seen)
        unknown = [f for f in verdict.findings if f.status == UNKNOWN and f.code in _UNTOLD]
        if unknown:
            return _by_look(verdict, CANNOT_BE_TOLD, unknown[0], seen)
        return _by_look(verdict, WORKS, None, seen)

    def _as_part(self, one: Decision, loading: set[Path]) -> Decision:
        """A part that its package does without is no failure, if only something of the system is
        missing for it, or if one of its kind for another version loads."""
        package = self.looked.packages.get(self.module_of.get(one.path, ""))
        if one.state != FAILS or one.decided_by != "look" or package is None:
            return one
        if not package.works or one.seen is None or one.seen.works or one.finding is None:
            return one
        sibling = next((path for path in loading if is_variant_of(one.path, path)), None)
        if sibling is not None:
            why = f"not for here, where {sibling.name} serves: {one.finding.why}"
            return one._replace(state=REMARK, finding=_as_note(one.finding, why))
        # The import of a folder without an `__init__.py` runs nothing, so it shows no work without.
        if one.finding.code in _OF_SYSTEM and not Path(package.file).is_dir():
            why = f"{package.what} works without it: {one.finding.why}"
            return one._replace(state=REMARK, finding=_as_note(one.finding, why))
        return one


#: What reading could not tell, and a look does not show either.
_UNTOLD: frozenset[Code] = frozenset({codes.DRIVER_UNKNOWN})


def state_of(verdict: Verdict) -> str:
    """What reading alone says of an object."""
    return WORKS if verdict.accepted else FAILS if verdict.rejection else CANNOT_BE_TOLD


def decision_by_reading(verdict: Verdict) -> Decision:
    return Decision(
        path=verdict.binary.path,
        state=state_of(verdict),
        finding=verdict.cause,
        decided_by="reading",
        seen=None,
        read=verdict,
    )


def is_mapped(path: Path, seen: Seen) -> bool:
    """Whether an object was in the memory of the process that imported its package."""
    return str(path) in seen.mapped or str(path.resolve()) in seen.mapped


def is_variant_of(path: Path, other: Path) -> bool:
    """Whether two files of a folder are one thing for two versions: their names differ in numbers
    and in the tag of Python alone."""
    return path != other and path.parent == other.parent and _stem(path) == _stem(other)


def _stem(path: Path) -> str:
    return re.sub(r"\d+", "", path.name.partition(".")[0])


def _by_look(verdict: Verdict, state: str, finding: Finding | None, seen: Seen) -> Decision:
    return Decision(
        path=verdict.binary.path,
        state=state,
        finding=finding,
        decided_by="look",
        seen=seen,
        read=verdict,
    )


def _note(code: Code, why: str) -> Finding:
    return Finding(dimension="import", status=NOTE, code=code, observed="", needed="", why=why)


def _as_note(finding: Finding, why: str) -> Finding:
    return finding._replace(status=NOTE, code=codes.OPTIONAL_PART, why=why)
