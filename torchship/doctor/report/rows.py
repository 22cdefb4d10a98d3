"""The rows of a report: what is said of one object, one package or one folder."""

from __future__ import annotations

from pathlib import Path

from ...judge.project import Record
from ...judge.records import NO_FIX, NOTE, UNKNOWN, Finding, Runtime, Verdict
from ...judge.words import render
from ..decide import (
    CANNOT_BE_TOLD,
    FAILS,
    REMARK,
    WORKS,
    Decision,
    decision_by_reading,
)
from ..environment.owner import find_owner
from ..looking.seen import Seen

#: What is said where reading alone decided, and found nothing against it: no import was seen.
NOTHING_FOUND = "nothing found"
STATES = {
    WORKS: "works",
    NOTHING_FOUND: NOTHING_FOUND,
    FAILS: "does not work",
    CANNOT_BE_TOLD: "cannot be told",
    REMARK: "note",
}


class Row(Record, kw_only=True):
    """What the report says of one shared object, package or folder."""

    path: Path
    state: str
    summary: str  #: one sentence
    finding: Finding | None = None  #: the cause, or the remark
    notes: tuple[Finding, ...] = ()  #: what should be known of an object even if it works
    package: str | None = None
    version: str | None = None
    allowed: str | None = None  #: the reason for which the allow-list lets it fail
    decided_by: str = "reading"  #: or "look"
    seen: Seen | None = None  #: what was seen, if it was looked at
    mends: bool | None = None  #: what its fix did beside the environment; None if not tried
    #: The releases that were tried, such as `einops 0.8.2`, also where none mends; None if there
    #: was nothing to try.
    tried: tuple[str, ...] | None = None
    why_not_tried: str = ""  #: why its fix was not tried, if it was to be
    read: Finding | None = None  #: what reading finds, if the look decided

    @property
    def said(self) -> str:
        """The state as it is told: `NOTHING_FOUND` in place of `WORKS` where only files were
        read."""
        return NOTHING_FOUND if self.state == WORKS and self.decided_by == "reading" else self.state

    @property
    def code(self) -> str:
        return (self.finding and self.finding.code) or ""

    @property
    def told(self) -> tuple[Finding, ...]:
        """The findings that are told: of what works the notes, else the cause or the remark."""
        if self.state == WORKS:
            return self.notes
        return (self.finding,) if self.finding is not None else ()

    @property
    def name(self) -> str:
        """The package with its version, such as `torchvision 0.24.1`."""
        return f"{self.package} {self.version or ''}".strip() if self.package else "(no package)"

    @property
    def is_for_another_release(self) -> bool:
        """Whether another release may mend it, and which one is not known."""
        fix = self.finding.fix if self.finding else NO_FIX
        return bool(fix.releases_of) and not fix.command

    @property
    def label(self) -> str:
        """What is printed before its fix: of one that was tried in vain, too, nothing says that it
        mends."""
        fix = self.finding.fix if self.finding else NO_FIX
        return fix._replace(is_advice=fix.is_advice or self.mends is False).label

    @property
    def is_failure(self) -> bool:
        return self.state == FAILS and self.allowed is None


def row_of(decision: Decision, runtime: Runtime) -> Row:
    """The row of an object that was looked at, or only read."""
    verdict = decision.read
    owner = verdict.binary.owner
    if owner is None:  # the binaries of the project, and unread files, come without one
        sites = [runtime.torch.root.parent] if runtime.torch else []
        owner = find_owner(runtime.target, decision.path, sites)
    finding = decision.finding
    notes = render.notes_of(verdict)
    remark = "; ".join(f"{note.why} ({note.code})" for note in notes) or "it was loaded"
    if verdict.accepted:
        remark = render.summary(verdict)
    return Row(
        path=decision.path,
        state=decision.state,
        summary=finding.why if finding else remark,
        finding=finding,
        notes=notes,
        package=owner.name if owner else None,
        version=owner.version if owner else None,
        decided_by=decision.decided_by,
        seen=decision.seen,
        read=verdict.cause if decision.decided_by == "look" else None,
    )


def row_of_verdict(verdict: Verdict, runtime: Runtime) -> Row:
    """The row of a shared object that was only read."""
    return row_of(decision_by_reading(verdict), runtime)


def imported(seen: Seen, path: Path, *, package: str, version: str | None) -> Row:
    """The row of a package without objects, whose import was seen to work."""
    return Row(
        path=path,
        state=WORKS,
        summary="it was imported",
        package=package,
        version=version,
        decided_by="look",
        seen=seen,
    )


def notice(
    finding: Finding, path: Path, *, package: str | None = None, version: str | None = None
) -> Row:
    """The row of a finding on something else than a shared object."""
    state = {NOTE: REMARK, UNKNOWN: CANNOT_BE_TOLD}.get(finding.status, FAILS)
    return Row(
        path=path,
        state=state,
        summary=finding.why,
        finding=finding,
        package=package,
        version=version,
    )
