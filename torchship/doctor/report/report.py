"""The report on an environment: its rows, and the forms in which it is printed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from ...judge.project import Record
from ...judge.records import NO_FIX, NOWHERE, Finding, Fix, Runtime, TorchInstall, dotted
from ...judge.rules import CODES
from ...judge.text import printable, quoted
from ...judge.words import codes, render
from ..decide import CANNOT_BE_TOLD, FAILS, REMARK, WORKS
from ..environment import pythons
from ..environment.elsewhere import environment_with
from ..looking.seen import Looked, Seen
from ..reasons.meaning import Diagnosis, meaning_of
from .rows import NOTHING_FOUND, STATES, Row

#: Of what an import printed, in JSON.
_MAX_OUTPUT = 4000


class Report(Record, kw_only=True):
    """What was judged, and what came out."""

    runtime: Runtime
    extensions: tuple[Row, ...]  #: one for each torch extension
    notices: tuple[Row, ...]  #: on packages, caches and torch itself
    other_torches: tuple[TorchInstall, ...]  #: that are on the path and not used
    files: int  #: that were judged
    seconds: float
    program: str = "torch-doctor"  #: how the doctor was called
    looked: Looked | None = None  #: what was seen, if packages were imported
    is_looking: bool = False  #: whether packages were imported
    fix: Fix = NO_FIX  #: of a torch that is missing, where nothing else is to be told
    why_not_looked: str = ""  #: why nothing was imported; "" if packages were

    @property
    def rows(self) -> tuple[Row, ...]:
        return (*self.extensions, *self.notices)

    @property
    def search(self) -> str:
        """The command that tries other releases of a package; its name is to follow."""
        python = self.runtime.target.python
        is_named = python is not None and python.found_by == pythons.NAMED
        where = f" --python {quoted(self.runtime.target.executable())}" if is_named else ""
        return f"{self.program} --try-fix{where}"

    @property
    def exit_code(self) -> int:
        """1 if something fails; 2 if nothing fails, but an import did not end or there is no torch
        to judge by; else 0."""
        if any(row.is_failure for row in self.rows):
            return 1
        if self.runtime.torch is None:
            return 2
        late = (row.code == codes.IMPORT_DOES_NOT_END and row.allowed is None for row in self.rows)
        return 2 if any(late) else 0


def _where_torch_is(runtime: Runtime) -> Iterator[str]:
    """A line on another environment that has torch, if one is known."""
    other = environment_with(runtime.target, "torch")
    if other is not None:
        made = (
            "; this one was made by its Python, and sees the packages of that Python's base alone"
        )
        place = render.shorten_home(str(other.prefix))
        yield f"{place} has torch{made if other.is_parent else ''}"


def heading(report: Report, body: str = "") -> list[str]:
    """The lines that come first: the judged torch and its folder, other torches, Python.

    `body` is what comes below them.
    """
    torch = report.runtime.torch
    if torch is None:
        lines = [render.shorten_home(report.runtime.torch_problem or "torch is not installed")]
        lines += _where_torch_is(report.runtime)
    elif torch.root == NOWHERE:
        lines = [f"torch {torch.version}, a release that need not be installed here"]
    else:
        device = torch.device.removeprefix("the ")
        lines = [f"torch {torch.version} ({device}) in {render.shorten_home(str(torch.root))}"]
    lines += [
        f"a second torch is on the path and not used: {other.version} in "
        f"{render.shorten_home(str(other.root))} ({codes.SECOND_TORCH})"
        for other in report.other_torches
    ]
    target = report.runtime.target
    prefix = render.shorten_home(target.prefix)
    python = render.shorten_home(target.executable())
    how = f" ({target.python.found_by})" if target.python and target.python.found_by else ""
    below = f"; below, $PREFIX is {prefix}" if "$PREFIX" in body else ""
    lines.append(f"Python {dotted(report.runtime.python)}, {python}{how}{below}")
    noun = "file" if report.files == 1 else "files"
    did = f"{report.files} {noun} read"
    if report.looked is not None:
        count = len(report.looked.packages)
        what = f"{count} package{'s' * (count != 1)}"
        did = f"{what if torch is None else f'torch and {what}'} imported, {did}"
    lines.append(f"{did} in {report.seconds:.1f} s")
    if report.looked is None:
        reason = f", since {report.why_not_looked}" if report.why_not_looked else ""
        said = (
            f"nothing was imported{reason}: objects were read, and what the Python of packages "
            "does was not looked at"
        )
        # No path is in it, so it may be broken anywhere.
        lines += textwrap.wrap(said, render.width(), subsequent_indent="  ")
    return lines


def table(report: Report) -> str:
    """A row for each import, each file and each remark."""
    rows = [(row.name, _file(row), _state(row), row.code, row.summary) for row in report.rows]
    header = ("package", "extension", "", "code", "why")
    return render.table(header, rows, report.runtime.target.prefix)


def first_code(report: Report) -> str:
    """The code that a reader meets first: of a failure, else of a note; "" if there is none."""
    rows = sorted(report.rows, key=lambda row: row.state in (REMARK, WORKS))
    return next((str(one.code) for row in rows for one in row.told if one.code), "")


def _file(row: Row) -> str:
    return printable(row.path.name)


def _state(row: Row) -> str:
    if row.allowed is not None:
        return "allowed"
    return STATES[row.said]


def summary(report: Report) -> str:
    """The last line: how many rows work, do not work, and cannot be told."""
    judged = [row for row in report.rows if row.state != REMARK]
    states = [row.said for row in judged]
    packages = len({row.name for row in judged})
    read = f"nothing found by reading: {states.count(NOTHING_FOUND)}, "
    works = f"working: {states.count(WORKS)}, " if report.is_looking else ""
    one, more = ("import or file", "imports and files") if report.is_looking else ("file", "files")
    line = (
        f"{packages} package{'s' * (packages != 1)}, "
        f"{len(judged)} {one if len(judged) == 1 else more}: "
        f"{works}{read if not works or NOTHING_FOUND in states else ''}"
        f"not working: {states.count(FAILS)}, "
        f"cannot be told: {states.count(CANNOT_BE_TOLD)}"
    )
    allowed = sum(row.allowed is not None for row in report.rows)
    return f"{line}; allowed: {allowed}" if allowed else line


def print_json(report: Report) -> None:
    torch = report.runtime.torch
    render.print_json(
        report.runtime.target.prefix,
        torch=torch.version if torch else None,
        torch_folder=str(torch.root) if torch and torch.root != NOWHERE else None,
        other_torches=[
            {"version": other.version, "folder": str(other.root)} for other in report.other_torches
        ],
        python=dotted(report.runtime.python),
        imported=report.is_looking,
        not_imported_since=report.why_not_looked or None,
        fix=report.fix or None,
        extensions=[_json_of(row) for row in report.extensions],
        notices=[_json_of(row) for row in report.notices],
        exit_code=report.exit_code,
    )


def _json_of(row: Row) -> dict[str, object]:
    return {
        "path": row.path,
        "package": row.package,
        "version": row.version,
        "state": row.said,
        "code": row.code or None,
        "cause": row.finding,
        "notes": row.notes,
        "allowed": row.allowed,
        "decided_by": row.decided_by,
        "mends": row.mends,
        "tried": [*row.tried] if row.tried is not None else None,
        "why_not_tried": row.why_not_tried or None,
        "seen": _json_of_seen(row.seen) if row.seen is not None else None,
        "read": row.read,
    }


def _json_of_seen(seen: Seen) -> dict[str, object]:
    return {
        "what": seen.what,
        "outcome": seen.outcome,
        "seconds": round(seen.seconds, 2),
        "errors": [
            {"line": error.last_line, "frames": [frame._asdict() for frame in error.frames]}
            for error in seen.errors
        ],
        "signal": seen.signal or None,
        "frames": [frame._asdict() for frame in seen.frames],
        "output": seen.output[-_MAX_OUTPUT:],
    }


def print_json_of_message(
    diagnosis: Diagnosis, report: Report | None, reason: Finding | None, prefix: str
) -> None:
    """The JSON of a message: what it means, and the verdicts on what it blames. `prefix` is the
    folder of the environment."""
    meaning = meaning_of(diagnosis.code)
    render.print_json(
        prefix,
        message=diagnosis.line,
        code=diagnosis.code,
        meaning=meaning.why,
        fix=meaning.fix,
        symbol=diagnosis.symbol or None,
        about_symbol=diagnosis.about_symbol or None,
        about_cause=diagnosis.about_cause or None,
        about_library=diagnosis.about_library or None,
        reason=reason,
        file=diagnosis.file or None,
        other_python=diagnosis.other_python or None,
        extensions=[_json_of(row) for row in report.extensions] if report else [],
    )


_COMMAND_OF = {FAILS: "error", CANNOT_BE_TOLD: "warning", REMARK: "notice"}


def print_github(report: Report) -> None:
    """Annotations of a GitHub workflow, then the lines that come first and last in the text."""
    for row in report.rows:
        command = "notice" if row.allowed is not None else _COMMAND_OF.get(row.state)
        if command is not None:
            print(_annotation(command, row))
        if row.state == WORKS:
            for note in row.notes:
                print(_annotation("notice", row._replace(finding=note, summary=note.why)))
    print("\n".join([*heading(report), summary(report)]))


def _annotation(command: str, row: Row) -> str:
    title = CODES[row.code].heading if row.code in CODES else "torch-doctor"
    message = f"{row.name}: {row.summary}"
    if row.allowed is not None:
        message += f" (allowed: {row.allowed})"
    if row.finding is not None and row.finding.fix:
        message += f"\n{row.label} {row.finding.fix}"
    properties = {
        "file": render.shorten_home(str(row.path)),
        "title": f"{row.code} {title}".strip(),
    }
    written = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items())
    return f"::{command} {written}::{_escape(message)}"


def _escape(value: str, others: str = "") -> str:
    """Text as a workflow command takes it: a newline would end the command, and start another."""
    lines = "\n".join(map(printable, value.split("\n")))
    for character in f"%\r\n{others}":
        lines = lines.replace(character, f"%{ord(character):02X}")
    return lines


def print_markdown(report: Report) -> None:
    """A table to paste into an issue or a job's summary."""
    prefix = report.runtime.target.prefix
    body = "\n".join(_lines_of_table(report, prefix))
    print("\n".join(f"- {_cell(line, prefix)}" for line in heading(report, body)))
    print(f"\n{body}\n\n{_cell(summary(report), prefix)}")


def _lines_of_table(report: Report, prefix: str) -> Iterator[str]:
    yield "| package | extension | | code | why | to fix |\n|---|---|---|---|---|---|"
    for row in report.rows:
        fix = "; ".join(render.shorten_fix(one.fix, prefix) for one in row.told if one.fix)
        cells = (row.name, _file(row), _state(row), row.code, row.summary)
        label = f"{row.label} " if row.label != "to fix:" else ""
        code = f"{label}{_code_span(fix)}" if fix else ""
        yield f"| {' | '.join(_cell(cell, prefix) for cell in cells)} | {code} |"


def _cell(value: str, prefix: str) -> str:
    """Text as a cell of a Markdown table, without markup of its own."""
    cell = render.shorten(value, prefix)
    for character in "\\|[]*_`":
        cell = cell.replace(character, f"\\{character}")
    return cell.replace("<", "&lt;")


def _code_span(value: str) -> str:
    """Text as code in a cell of a Markdown table, where only a bar needs an escape.

    The fence is longer than any run of backticks in the text.
    """
    code = value.replace("|", "\\|")
    runs = re.findall("`+", code)
    fence = "`" * (max(map(len, runs), default=0) + 1)
    padding = " " if runs else ""
    return f"{fence}{padding}{code}{padding}{fence}"
