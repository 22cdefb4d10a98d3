"""Writes the tables of pages that follow from the project's data into the pages.

    python -m docs._ext.page_tables

They stand in the pages, so that they can be read where no site is built.
"""

from __future__ import annotations

from pathlib import Path

from torchship.judge.reading.layouts import FIELDS, LAYOUTS
from torchship.release.matrix import load as build_matrix
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


def costs() -> str:
    """How many binaries the usual way would need for the matrix, and how many it has."""
    matrix = build_matrix.load(DOCS.parent / "build_matrix.yaml")
    torches = matrix.torch.values()
    pairs = sum(len(torch.pythons) for torch in torches)
    flavours = [{torch.abi.pypi, torch.abi.conda} for torch in torches if torch.aten]
    glues = 1 + sum(map(len, flavours))
    counts = {
        "torch minors": len(matrix.torch),
        "Pythons": len(matrix.package.pythons),
        "pairs of them for which PyPI has a torch": pairs,
        "extensions that the usual way compiles, CPU and CUDA": 2 * pairs,
        "glue objects here, one a torch ABI": glues,
        "kernel objects here, one a CUDA major and one for the CPU": len(matrix.kernels),
    }
    rows = [row(what, str(count)) for what, count in counts.items()]
    return "\n".join([row("what", "how many"), "|---" * 2 + "|", *rows])


#: The table of each page, by the name in its markers.
TABLES = {
    DOCS / "how" / "verdict.md": ("layouts", layouts),
    DOCS / "ship" / "costs.md": ("costs", costs),
}


def page_of(path: Path) -> str:
    """The content of a page with its table as it is now."""
    name, draw = TABLES[path]
    return filled(path, path.read_text(encoding="utf-8"), Part(name, f"\n{draw()}\n\n"))


if __name__ == "__main__":
    for page in TABLES:
        page.write_text(page_of(page), encoding="utf-8")
