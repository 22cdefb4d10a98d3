"""The table of other people's objects under several interpreters."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from measurements import storage
from torchship.release.matrix.support_table import row as table_row

PATH = storage.RESULTS / "foreign_interpreters.json.xz"
SEED = 44


@dataclass(frozen=True)
class Row:
    """An object beside a torch, under an interpreter."""

    interpreter: str
    torch: str
    object: str
    library_path: str
    """How LD_LIBRARY_PATH was set; "" where it was not."""
    verdict: str
    """`works`, `fails` or `unknown`."""
    outcome: str
    """`works`, or how it failed."""
    seconds: float
    code: str = ""
    why: str = ""
    error: str = ""

    @property
    def works(self) -> bool:
        return self.outcome == "works"


@dataclass(frozen=True)
class MissingWheel:
    """A release that has no wheel for a version of Python."""

    distribution: str
    release: str
    python: str


@dataclass(frozen=True)
class InterpreterTable:
    command: str
    machine: str
    missing: tuple[MissingWheel, ...]
    rows: tuple[Row, ...]


def save(table: InterpreterTable) -> None:
    """Store the table without the fields that are empty."""
    rows = [{key: value for key, value in asdict(row).items() if value} for row in table.rows]
    document = {
        "command": table.command,
        "machine": table.machine,
        "seed": SEED,
        "missing": [asdict(wheel) for wheel in table.missing],
        "rows": rows,
    }
    storage.save(document, PATH)


def load() -> InterpreterTable:
    document = storage.load(PATH)
    assert isinstance(document, dict)
    empty = {"library_path": "", "seconds": 0.0}
    return InterpreterTable(
        command=document["command"],
        machine=document["machine"],
        missing=tuple(MissingWheel(**fields) for fields in document["missing"]),
        rows=tuple(Row(**{**empty, **fields}) for fields in document["rows"]),
    )


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"


def count_accepted_that_fail(rows: Sequence[Row]) -> int:
    return sum(row.verdict == "works" and not row.works for row in rows)


def draw(table: InterpreterTable) -> str:
    """A line for each interpreter, for each way in which LD_LIBRARY_PATH was set, and for all."""
    interpreters = list(dict.fromkeys(row.interpreter for row in table.rows))
    paths = sorted({row.library_path for row in table.rows if row.library_path})
    torches = ", ".join(dict.fromkeys(row.torch for row in table.rows))
    groups = {
        **{name: [r for r in table.rows if r.interpreter == name] for name in interpreters},
        **{
            f"LD_LIBRARY_PATH: {path}": [r for r in table.rows if r.library_path == path]
            for path in paths
        },
        "**all**": list(table.rows),
    }
    headings = (
        "rows",
        "work",
        "accepted that fail",
        "working, refused",
        "working, unknown",
        "failing, unknown",
    )
    rows, working, _, refused, unknown, failing_unknown = _counts(table.rows)
    lines = [
        "All objects of the table above that have a wheel for the interpreter's Python, beside "
        f"torch {torches}. Seed {SEED} draws the rows with LD_LIBRARY_PATH.",
        "",
        table_row("", *headings),
        "|---" * (len(headings) + 1) + "|",
        *(table_row(name, *map(str, _counts(group))) for name, group in groups.items()),
        "",
        f"- Accepted although they fail: **{count_accepted_that_fail(table.rows)}**.",
        f"- Working and not accepted: {_share(refused + unknown, working)} ({refused} refused; "
        f"{unknown} cannot be told, {_share(unknown, working)} of the working rows).",
        f"- Failing and cannot be told: {_share(failing_unknown, rows - working)} of the failing "
        "rows.",
        *_missing_lines(table.missing),
        "",
        f"Measured by `{table.command}` ({table.machine}); every row is in "
        "`measurements/results/foreign_interpreters.json.xz`.",
    ]
    return "\n".join(lines)


def _counts(rows: Sequence[Row]) -> tuple[int, ...]:
    working = [row for row in rows if row.works]
    failing = [row for row in rows if not row.works]
    return (
        len(rows),
        len(working),
        count_accepted_that_fail(rows),
        sum(row.verdict == "fails" for row in working),
        sum(row.verdict == "unknown" for row in working),
        sum(row.verdict == "unknown" for row in failing),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _missing_lines(missing: Sequence[MissingWheel]) -> Iterator[str]:
    """A line for each Python with the releases that have no wheel for it."""
    for python in sorted({wheel.python for wheel in missing}):
        releases = [f"{w.distribution} {w.release}" for w in missing if w.python == python]
        yield f"- No wheel for Python {python}, so no rows: {', '.join(releases)}."
