"""Writes the tables of pages that follow from the project's data into the pages.

    python -m docs._ext.page_tables

They stand in the pages, so that they can be read where no site is built.
"""

from __future__ import annotations

from pathlib import Path

from torchship.judge.reading.layouts import FIELDS, LAYOUTS
from torchship.release.matrix.generated import Part, filled
from torchship.release.matrix.support_table import row

DOCS = Path(__file__).resolve().parents[1]


def layouts() -> str:
    """Ten numbers for each torch: the layout of its C++ classes."""
    head = ["number", *(f"{major}.{minor}" for major, minor in LAYOUTS)]
    rows = [
        row(f"`{name}`", *(str(layout[name]) for layout in LAYOUTS.values())) for name in FIELDS
    ]
    return "\n".join([row(*head), "|---" * len(head) + "|", *rows])


#: The table of each page, by the name in its markers.
TABLES = {
    DOCS / "how" / "verdict.md": ("layouts", layouts),
}


def page_of(path: Path) -> str:
    """The content of a page with its table as it is now."""
    name, draw = TABLES[path]
    return filled(path, path.read_text(encoding="utf-8"), Part(name, f"\n{draw()}\n\n"))


if __name__ == "__main__":
    for page in TABLES:
        page.write_text(page_of(page), encoding="utf-8")
