"""What a trial of a torch found, and the page that shows the stored one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from measurements import storage
from torchship.release.matrix.generated import Part, filled
from torchship.release.matrix.support_table import row

PATH = storage.RESULTS / "new_torch.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "ship" / "new-torch.md"
MOST_LINES = 12  # of a file's difference that are kept
LONGEST = 160  # characters of such a line


@dataclass(frozen=True)
class Step:
    """A step of a trial, and how long it took."""

    step: str
    seconds: float


@dataclass(frozen=True)
class FileDifference:
    """A file that differs, with the number of its lines and the first of them."""

    file: str
    added: int
    removed: int
    lines: list[str]


@dataclass(frozen=True)
class Tests:
    """How the tests of the op ended."""

    passed: int
    failed: int
    skipped: int
    failures: list[dict[str, str]]


@dataclass(frozen=True)
class Report:
    """What a trial found.

    `tables` is what the torch changed, and `unlike_commit` what differs from the last commit after
    the torch was taken out and put in again.
    """

    torch: str
    cuda: str | None
    python: str
    date: str
    commit: str
    was_taken_out: bool
    steps: list[Step]
    layout_changes: list[str]
    symbols_lost: list[str]
    tables: list[FileDifference]
    unlike_commit: list[FileDifference]
    tests: Tests


def load() -> Report:
    """The stored report."""
    document = cast("dict[str, Any]", storage.load(PATH))
    document["steps"] = [Step(**step) for step in document["steps"]]
    for name in ("tables", "unlike_commit"):
        document[name] = [FileDifference(**entry) for entry in document[name]]
    document["tests"] = Tests(**document["tests"])
    return Report(**document)


def draw_steps(report: Report) -> str:
    """How long each step took."""
    total = sum(step.seconds for step in report.steps)
    lines = [
        row("step", "seconds"),
        "|---|---|",
        *(row(step.step, f"{step.seconds:.0f}") for step in report.steps),
        row("all", f"{total:.0f}"),
    ]
    return "\n".join(lines)


def draw_differences(differences: list[FileDifference]) -> str:
    """The files that differ, and how many lines of them."""
    lines = [
        row("file", "lines added", "lines removed"),
        "|---|---|---|",
        *(row(f"`{d.file}`", str(d.added), str(d.removed)) for d in differences),
    ]
    return "\n".join(lines)


def to_markdown(report: Report) -> str:
    """The whole report."""
    cuda = f"CUDA {report.cuda}" if report.cuda else "CPU build"
    changes = ", ".join(report.layout_changes) or "none"
    lost = ", ".join(f"`{name}`" for name in report.symbols_lost) or "none"
    tests = f"{report.tests.passed} passed, {report.tests.failed} failed"
    lines = [
        f"Torch {report.torch} ({cuda}) with Python {report.python} on {report.date}, commit "
        f"`{report.commit[:12]}`.",
        "",
        draw_steps(report),
        "",
        f"- Numbers of the layout that differ from the minor before: {changes}.",
        f"- Symbols of the checker's table that this torch lacks: {lost}.",
        f"- Tests of the op: {tests}, {report.tests.skipped} skipped.",
        "",
        "What it changed:",
        "",
        draw_differences(report.tables),
    ]
    if report.was_taken_out:
        lines += ["", "What differs from the committed tables:", ""]
        lines.append(draw_differences(report.unlike_commit) if report.unlike_commit else "Nothing.")
    return "\n".join(lines)


def page(old: str, report: Report) -> str:
    """The page with the report in it."""
    return filled(PAGE, old, Part("trial", f"\n{to_markdown(report)}\n\n"))


def draw() -> None:
    """Draws the stored report into its page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
