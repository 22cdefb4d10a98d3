"""The report in blocks: for each package that fails, what was seen, why, and one command."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial

from ...judge.fixes.kinds import LEAVING
from ...judge.project import Record
from ...judge.records import NO_FIX, Finding, Fix
from ...judge.text import some
from ...judge.words import codes, render
from ..decide import CANNOT_BE_TOLD, FAILS, REMARK, WORKS
from ..environment.owner import is_shared_object_name
from ..environment.targets import exists
from ..looking.seen import Seen
from .report import Report, first_code, heading, summary, table
from .rows import NOTHING_FOUND, STATES, Row

#: Of what was seen, and of why.
_MOST_LINES = 3
_ALL = 10_000
_MOST_NOTES = 5
_MOST_FIXES = 2
_ELSEWHERE = "; it was tried in another folder, and nothing here was changed"
_RED, _YELLOW, _GREEN, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"
_COLOUR_OF = {FAILS: _RED, CANNOT_BE_TOLD: _YELLOW, WORKS: _GREEN}


class _Size(Record, kw_only=True):
    """How much of a report is printed."""

    lines: int = _MOST_LINES  #: of what was seen, and of why
    notes: int = _MOST_NOTES
    fixes: int = _MOST_FIXES
    has_rows: bool = False


_NORMAL = _Size()


def print_blocks(report: Report) -> None:
    """Print what fails, package by package; what works is one line."""
    _print(report, _NORMAL)


def print_all(report: Report) -> None:
    """Print the blocks without a limit, and then a row for each import and each file."""
    _print(report, _Size(lines=_ALL, notes=_ALL, fixes=_ALL, has_rows=True))


def _print(report: Report, size: _Size) -> None:
    body = "\n".join(_lines(report, size) if report.rows else _of_nothing(report))
    print("\n".join([*heading(report, body), "", body]))


def _of_nothing(report: Report) -> Iterator[str]:
    yield "no torch extension was found"
    if report.fix:
        named = f"{report.program} --python /env/bin/python"
        yield f"  {'to fix:':<9}name a Python that has torch: {named}"
        yield f"  {'or:':<9}{render.shorten_fix(report.fix)}"


def _lines(report: Report, size: _Size) -> Iterator[str]:
    failing = [row for row in report.rows if row.state in (FAILS, CANNOT_BE_TOLD)]
    said: dict[str, str] = {}
    for name, rows in by_package(failing).items():
        yield from block(name, rows, said, report, size=size)
        yield ""
    if size.has_rows:
        yield f"{table(report)}\n"
    yield from _rest(report, size)


def by_package(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each package, in their order: torch first, since all others need it."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.package != "torch"):
        groups.setdefault(row.name, []).append(row)
    return groups


def block(
    name: str, rows: Sequence[Row], said: dict[str, str], report: Report, *, size: _Size = _NORMAL
) -> Iterator[str]:
    """The lines on one package of a report. `said` are the causes that were told before, each with
    the package of which it was told."""
    labelled = partial(_labelled, most=size.lines)
    prefix = report.runtime.target.prefix
    # The import of the package itself tells more than its parts.
    main = next(
        (row for row in rows if row.seen is not None and not row.seen.what.startswith("/")), None
    )
    main = main or rows[0]
    state = "allowed" if main.allowed is not None else STATES[main.state]
    yield f"{name} {_coloured(state, main)}{f'  {main.code}' if main.code else ''}"
    if main.summary in said:
        yield from labelled("why:", f"as {said[main.summary]}", prefix)
        return
    said[main.summary] = name
    seen = main.seen
    if seen is not None and not seen.works:
        yield from labelled("seen:", f"{_called(seen.what)}: {_said(seen)}", prefix)
    yield from labelled("why:", main.summary, prefix)
    if main.allowed is not None:
        yield from labelled("allowed:", main.allowed, prefix)
    # A file that is not there is the cause, and no part that fails as well.
    others = [row.path.name for row in rows if row is not main and exists(str(row.path))]
    if others:
        noun = "file" if len(others) == 1 else "files"
        yield from labelled("also:", f"its {noun} {some(others, 3)}", prefix)
    # Where it is known why the package is not imported, that is to be mended first: what holds for
    # its parts then is not known yet.
    is_explained = _is_failed_import(seen) and main.code != codes.REASON_NOT_KNOWN
    of_parts = [] if is_explained else rows
    fixes = _fixes([main, *of_parts])[: size.fixes]
    for number, fix in enumerate(fixes):
        # A command is printed whole: it is to be copied.
        label = main.label if main.finding and fix == main.finding.fix else fix.label
        label = "then:" if number and label == "to fix:" else label
        yield f"  {label:<9}{render.shorten_fix(fix, prefix)}"
    mending = [fix for fix in fixes if not fix.is_advice]
    if len(mending) > 1:
        yield from labelled("needed:", _which_are_needed(mending), prefix)
    if main.tried is not None:
        not_too = f"; nor was the command: {main.why_not_tried}" if main.why_not_tried else ""
        yield from labelled("tried:", f"{_of_trial(main.tried, main.mends)}{not_too}", prefix)
    elif main.why_not_tried:
        yield from labelled("tried:", f"nothing, since {main.why_not_tried}", prefix)
    elif seen is not None and is_explained and main.is_for_another_release:
        yield f"  {'to try:':<9}{report.search} {seen.what}"


def _said(seen: Seen) -> str:
    """The first line of the error; where it has only the type, also the next one."""
    lines = [line for line in map(str.strip, seen.last_line.splitlines()) if line]
    is_bare = len(lines) > 1 and re.fullmatch(r"[\w.]+:", lines[0]) is not None
    return " ".join(lines[: 2 if is_bare else 1])


def _is_failed_import(seen: Seen | None) -> bool:
    """Whether it was a package that was looked at, not a file, and its import failed."""
    return seen is not None and not seen.works and not seen.what.startswith("/")


def _of_trial(tried: Sequence[str], mends: bool | None) -> str:
    """What came of the releases that were tried."""
    if not tried:
        return (
            "the installer offers no release that leaves torch and the other packages as they are"
        )
    is_one = len(tried) == 1
    fixes = "fixes" if is_one else "fix"
    fail_to = "does not fix" if is_one else "do not fix"
    return f"{some(tried)} {fixes if mends else fail_to} the import{_ELSEWHERE}"


def _fixes(rows: Sequence[Row]) -> list[Fix]:
    """The fixes of some rows, each command once, in the order in which they are needed."""
    fixes: dict[str, Fix] = {}
    for row in rows:
        if row.finding is not None and row.finding.fix:
            fixes.setdefault(row.finding.fix.command or row.finding.fix.text, row.finding.fix)
    return [*fixes.values()]


def _which_are_needed(fixes: Sequence[Fix]) -> str:
    """Whether all fixes of a package are needed. Each is of another cause, but all causes were
    found in the files that are here now: one that puts others there may mend the rest."""
    if all(fix.kind in LEAVING for fix in fixes[:-1]):
        return "both, in this order" if len(fixes) == 2 else "all, in this order"
    rest = "the second" if len(fixes) == 2 else "the others"
    return f"the first; check again after it, since {rest} may then be needed no more"


def lines_of_reason(reason: Finding | None, prefix: str) -> Iterator[str]:
    """What a pasted message comes from in this environment, if that is known."""
    if reason is not None:
        yield from _labelled("here:", f"{reason.code}: {reason.why}", prefix)
        if reason.fix:
            yield f"  {reason.fix.label:<9}{render.shorten_fix(reason.fix, prefix)}"


def _called(what: str) -> str:
    return os.path.basename(what) if what.startswith("/") else f"import {what}"  # noqa: PTH119


def _rest(report: Report, size: _Size) -> Iterator[str]:
    prefix = report.runtime.target.prefix
    told = {row.name for row in report.rows if row.state in (FAILS, CANNOT_BE_TOLD)}
    for state, words in ((WORKS, "works"), (NOTHING_FOUND, "nothing found by reading")):
        of_state = by_package([row for row in report.rows if row.said == state])
        names = [_working(name, of_state[name]) for name in of_state if name not in told]
        told.update(of_state)
        if names:
            yield from _wrapped(f"{words}: ", ", ".join(names), prefix)
    notes = _notes(report.rows)
    for note in notes[: size.notes]:
        code = f" ({note.code})" if note.code else ""
        yield from _wrapped("note: ", f"{some([*note.of], 3)}: {note.why}{code}", prefix)
        if note.fix:
            yield f"      {note.fix.label} {render.shorten_fix(note.fix, prefix)}"
    if len(notes) > size.notes:
        yield f"note: {len(notes) - size.notes} more: {report.program} --verbose"
    yield summary(report)
    explained = first_code(report)
    if explained:
        more = "" if size.has_rows else "; every row: --verbose"
        yield f"what a code means: {report.program} {explained}{more}"


def _working(name: str, rows: Sequence[Row]) -> str:
    """A package that works; of one without objects, its import is all that was seen."""
    is_import = not any(is_shared_object_name(row.path.name) for row in rows)
    return f"{name} (imports)" if is_import else name


class _Note(Record, kw_only=True):
    """A remark, and of what it is one."""

    of: tuple[str, ...]
    why: str
    code: str
    fix: Fix


def _notes(rows: Sequence[Row]) -> list[_Note]:
    """The remarks, and what should be known of objects that work: each once, first what can be
    fixed."""
    notes: dict[tuple[str, str, str], _Note] = {}
    for row in rows:
        if row.state not in (REMARK, WORKS):
            continue
        told = [(one.why, one.code or "", one.fix) for one in row.notes]
        if row.state == REMARK:
            told = [(row.summary, row.code, row.finding.fix if row.finding else NO_FIX)]
        for why, code, fix in told:
            key = (why, code, fix.text)
            before = notes[key].of if key in notes else ()
            of = (*before, f"{row.name}: {row.path.name}")
            notes[key] = _Note(of=of, why=why, code=code, fix=fix)
    return sorted(notes.values(), key=lambda note: not note.fix)


def _labelled(label: str, sentences: str, prefix: str, most: int = _MOST_LINES) -> Iterator[str]:
    lines = [*_wrapped(f"  {label:<9}", sentences, prefix)]
    yield from lines[:most]
    if len(lines) > most:
        yield f"{' ' * 11}... (all of it: --verbose)"


def _wrapped(start: str, sentences: str, prefix: str) -> list[str]:
    return textwrap.wrap(
        render.shorten(sentences, prefix),
        render.width(),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _coloured(state: str, row: Row) -> str:
    """The state, coloured where there is a terminal that wants it (https://no-color.org)."""
    colour = _COLOUR_OF.get(row.state, "") if row.allowed is None else ""
    if not (colour and sys.stdout.isatty()) or os.environ.get("NO_COLOR"):
        return state
    return f"{colour}{state}{_PLAIN}"
