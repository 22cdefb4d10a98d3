"""Generated parts of pages that people write, between markers."""

from __future__ import annotations

from pathlib import Path

from release import REPO, ReleaseError, evidence, support_table
from release.schema import Matrix

README_FILE = REPO / "README.md"
SUPPORT_PAGE = REPO / "docs" / "support.md"


def filled(path: Path, name: str, text: str, comment: tuple[str, str] = ("<!-- ", " -->")) -> str:
    """The file with `text` between its markers `NAME:begin` and `NAME:end`.

    Raises:
        ReleaseError: the markers are not there, once each and in order.
    """
    begin, end = (f"{comment[0]}{name}:{which}{comment[1]}\n" for which in ("begin", "end"))
    old = path.read_text(encoding="utf-8")
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed or begin in rest or end in before + after:
        raise ReleaseError(
            f"{path.relative_to(REPO)} must hold {begin.strip()} and {end.strip()} once each, in "
            "this order; put them round what is generated"
        )
    return before + begin + text + end + after


def pages(matrix: Matrix) -> dict[Path, str]:
    """README.md and docs/support.md with tables that follow from matrix and evidence."""
    seen = evidence.load()
    return {
        README_FILE: filled(README_FILE, "support-table", support_table.short(matrix, seen)),
        SUPPORT_PAGE: filled(SUPPORT_PAGE, "environments", support_table.full(matrix, seen)),
    }
