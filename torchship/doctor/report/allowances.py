"""The allow-list: failures that a workflow accepts for now, each with its reason.

A line is `PACKAGE[/FILE] CODE REASON`, or `FILE CODE REASON`; `#` begins a comment. An entry that
no longer occurs is itself a failure, so the list only shrinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...judge import fixes
from ...judge.project import Record
from ...judge.records import REJECTED, Finding
from ...judge.rules import CODES
from ...judge.text import printable, read_regular
from ...judge.words import codes
from ..decide import REMARK, WORKS
from ..environment.standards import normal
from ..environment.targets import UsageError
from .rows import Row, notice

_MAX_FILE = 1 << 20
_EXAMPLE = "torchaudio TD110 waits for the release of next week"


class Allowance(Record):
    """One line of the list."""

    subject: str  #: a package, a package with a file, or a file
    code: str
    reason: str
    line: int

    def covers(self, row: Row) -> bool:
        """Whether this is the failure that the entry names."""
        if row.code != self.code or row.state in (WORKS, REMARK):
            return False
        package = normal(row.package or "")
        subject = self.subject
        first, _, rest = subject.partition("/")
        if package and normal(first) == package:
            return not rest or rest == row.path.name
        return subject == row.path.name or str(row.path).endswith(f"/{subject.lstrip('/')}")


def read(path: Path) -> list[Allowance]:
    """The entries of an allow-list. Raises UsageError."""
    try:
        content = read_regular(path, _MAX_FILE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the allow-list {printable(path)} cannot be read ({error}). Name a text file."
        ) from None
    lines = (line.partition("#")[0].strip() for line in content.splitlines())
    return [_parse(line, number, path) for number, line in enumerate(lines, 1) if line]


def _parse(line: str, number: int, path: Path) -> Allowance:
    parts = line.split(None, 2)
    place = f"line {number} of {printable(path)}"
    if len(parts) < 3:
        raise UsageError(
            f"{place} is {printable(line)[:200]!r}: an entry is a package or file, a code and the "
            f"reason why it is allowed, e.g. {_EXAMPLE}"
        )
    subject, code, reason = parts
    if code not in CODES:
        raise UsageError(
            f"{place} names the code {printable(code)[:20]!r}, which does not exist. "
            f"Name one that a report shows, e.g. {_EXAMPLE}"
        )
    return Allowance(subject, code, printable(reason), number)


def apply(entries: Sequence[Allowance], rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, with the reasons of those that an entry covers."""
    for row in rows:
        entry = next((entry for entry in entries if entry.covers(row)), None)
        yield row if entry is None else row._replace(allowed=entry.reason)


def stale(entries: Iterable[Allowance], rows: Sequence[Row], path: Path) -> Iterator[Row]:
    """A failure for each entry that covers no row."""
    for entry in entries:
        if not any(entry.covers(row) for row in rows):
            finding = Finding(
                dimension="allow-list",
                status=REJECTED,
                code=codes.STALE_ALLOWANCE,
                observed="it no longer occurs",
                needed=f"{entry.code} of {printable(entry.subject)}",
                why=(
                    f"line {entry.line} allows {entry.code} of {printable(entry.subject)}, "
                    "which no longer occurs"
                ),
                fix=fixes.in_words(f"remove line {entry.line} of {printable(path)}"),
            )
            yield notice(finding, path)
