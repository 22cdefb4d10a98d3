"""The report on an environment: its rows, and the forms in which it is printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ..judge import codes, interpreter, render
from ..judge.project import Record
from ..judge.records import NOTE, NOWHERE, UNKNOWN, Finding, Runtime, TorchInstall, Verdict, dotted
from ..judge.rules import CODES
from ..judge.text import printable
from .environment.owner import find_owner
from .meaning import Diagnosis, meaning_of

WORKS, FAILS, CANNOT_BE_TOLD, REMARK = "works", "fails", "unknown", "note"
STATES = {WORKS: "works", FAILS: "does not work", CANNOT_BE_TOLD: "cannot be told", REMARK: "note"}


class Row(Record, kw_only=True):
    """What the report says of one shared object, package or folder."""

    path: Path
    state: str
    summary: str  #: one sentence
    finding: Finding | None = None  #: the cause, or the remark
    package: str | None = None
    version: str | None = None
    allowed: str | None = None  #: the reason for which the allow-list lets it fail

    @property
    def code(self) -> str:
        return (self.finding and self.finding.code) or ""

    @property
    def name(self) -> str:
        """The package with its version, such as `torchvision 0.24.1`."""
        return f"{self.package} {self.version or ''}".strip() if self.package else "(no package)"

    @property
    def is_failure(self) -> bool:
        return self.state == FAILS and self.allowed is None


class Report(Record, kw_only=True):
    """What was judged, and what came out."""

    runtime: Runtime
    extensions: tuple[Row, ...]  #: one for each torch extension
    notices: tuple[Row, ...]  #: on packages, caches and torch itself
    other_torches: tuple[TorchInstall, ...]  #: that are on the path and not used
    files: int  #: that were looked at
    seconds: float
    program: str = "torch-doctor"  #: how the doctor was called

    @property
    def rows(self) -> tuple[Row, ...]:
        return (*self.extensions, *self.notices)

    @property
    def exit_code(self) -> int:
        return int(any(row.is_failure for row in self.rows))


def row_of_verdict(verdict: Verdict, runtime: Runtime) -> Row:
    """The row of a judged shared object."""
    owner = verdict.binary.owner
    if owner is None:  # the binaries of the project, and unread files, come without one
        owner = find_owner(
            verdict.binary.path, [runtime.torch.root.parent] if runtime.torch else []
        )
    cause = verdict.cause
    state = WORKS if verdict.accepted else FAILS if verdict.rejection else CANNOT_BE_TOLD
    return Row(
        path=verdict.binary.path,
        state=state,
        summary=cause.why if cause else render.summary(verdict),
        finding=cause,
        package=owner.name if owner else None,
        version=owner.version if owner else None,
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


def heading(report: Report) -> list[str]:
    """The lines that come first: the judged torch and its folder, other torches, Python."""
    torch = report.runtime.torch
    if torch is None:
        lines = [render.shorten_home(report.runtime.torch_problem or "torch is not installed")]
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
    prefix = render.shorten_home(interpreter.prefixes()[0])
    lines.append(f"Python {dotted(report.runtime.python)}; $PREFIX is {prefix}")
    noun = "file" if report.files == 1 else "files"
    lines.append(f"{report.files} {noun} looked at in {report.seconds:.1f} s")
    return lines


def print_text(report: Report) -> None:
    print("\n".join(heading(report)) + "\n")
    if not report.rows:
        print("no torch extension was found")
        return
    rows = [(row.name, _file(row), _state(row), row.code, row.summary) for row in report.rows]
    print(render.table(("package", "extension", "", "code", "why"), rows))
    named: set[str] = set()
    for row in _mended(report):
        assert row.finding is not None
        # Of two fixes for one package, a reader must know that neither stands for the other.
        as_well = f" as well ({row.code})" if row.name in named else ""
        named.add(row.name)
        print(f"\nto fix {row.name}{as_well}: {render.shorten(row.finding.fix)}")
    print(f"\n{summary(report)}")
    explained = next((row.code for row in report.rows if row.code), "")
    if explained:
        print(f"what a code means: {report.program} {explained}")


def _file(row: Row) -> str:
    return printable(row.path.name)


def _state(row: Row) -> str:
    return "allowed" if row.allowed is not None else STATES[row.state]


def _mended(report: Report) -> Iterator[Row]:
    """The first row for each cure."""
    cures: set[str] = set()
    for row in report.rows:
        if row.finding is not None and row.finding.fix and row.finding.fix not in cures:
            cures.add(row.finding.fix)
            yield row


def summary(report: Report) -> str:
    """The last line: how many extensions work, do not work, and cannot be told."""
    states = [row.state for row in report.extensions]
    count = len(states)
    noun = f"{count} torch extension{'s' * (count != 1)}"
    line = (
        f"{noun}: working: {states.count(WORKS)}, not working: {states.count(FAILS)}, "
        f"cannot be told: {states.count(CANNOT_BE_TOLD)}"
    )
    allowed = sum(row.allowed is not None for row in report.rows)
    return f"{line}; allowed: {allowed}" if allowed else line


def print_json(report: Report) -> None:
    torch = report.runtime.torch
    render.print_json(
        torch=torch.version if torch else None,
        torch_folder=str(torch.root) if torch and torch.root != NOWHERE else None,
        other_torches=[
            {"version": other.version, "folder": str(other.root)} for other in report.other_torches
        ],
        python=dotted(report.runtime.python),
        extensions=[_json_of(row) for row in report.extensions],
        notices=[_json_of(row) for row in report.notices],
        exit_code=report.exit_code,
    )


def _json_of(row: Row) -> dict[str, object]:
    return {
        "path": row.path,
        "package": row.package,
        "version": row.version,
        "state": row.state,
        "code": row.code or None,
        "cause": row.finding,
        "allowed": row.allowed,
    }


def print_json_of_message(diagnosis: Diagnosis, report: Report | None) -> None:
    """The JSON of a message: what it means, and the verdicts on what it blames."""
    meaning = meaning_of(diagnosis.code)
    render.print_json(
        message=diagnosis.line,
        code=diagnosis.code,
        meaning=meaning.why,
        fix=meaning.fix,
        symbol=diagnosis.symbol or None,
        about_symbol=diagnosis.about_symbol or None,
        about_cause=diagnosis.about_cause or None,
        about_library=diagnosis.about_library or None,
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
    print("\n".join([*heading(report), summary(report)]))


def _annotation(command: str, row: Row) -> str:
    title = CODES[row.code].heading if row.code in CODES else "torch-doctor"
    message = f"{row.name}: {row.summary}"
    if row.allowed is not None:
        message += f" (allowed: {row.allowed})"
    if row.finding is not None and row.finding.fix:
        message += f"\nto fix: {row.finding.fix}"
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
    print("\n".join(f"- {_cell(line)}" for line in heading(report)) + "\n")
    print("| package | extension | | code | why | to fix |\n|---|---|---|---|---|---|")
    for row in report.rows:
        fix = row.finding.fix if row.finding is not None else ""
        cells = (row.name, _file(row), _state(row), row.code, row.summary)
        code = _code_span(fix) if fix else ""
        print(f"| {' | '.join(map(_cell, cells))} | {code} |")
    print(f"\n{_cell(summary(report))}")


def _cell(value: str) -> str:
    """Text as a cell of a Markdown table, without markup of its own."""
    cell = render.shorten(value)
    for character in "\\|[]*_`":
        cell = cell.replace(character, f"\\{character}")
    return cell.replace("<", "&lt;")


def _code_span(value: str) -> str:
    """Text as code in a cell of a Markdown table, where only a bar needs an escape.

    The fence is longer than any run of backticks in the text.
    """
    code = render.shorten(value).replace("|", "\\|")
    runs = re.findall("`+", code)
    fence = "`" * (max(map(len, runs), default=0) + 1)
    padding = " " if runs else ""
    return f"{fence}{padding}{code}{padding}{fence}"


#: How a report is printed, by the option that asks for it.
FORMS: dict[str, Callable[[Report], None]] = {
    "text": print_text,
    "json": print_json,
    "github": print_github,
    "markdown": print_markdown,
}
