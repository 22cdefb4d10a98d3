"""The picture of a terminal in README: what the page of the gallery on torchvision shows.

The page is run, and what its commands print is stored in it, so the picture shows nothing else.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from .canvas import Colours

PAGE = Path(__file__).resolve().parents[1] / "gallery" / "torchvision.md"
COMMAND = "torch-doctor --python /env/bin/python"
SIZE = 13  #: of the font, in pixels
LINE = 18  #: from one line to the next, in pixels
COLUMN = 7.83  #: the width of a character of that size, in pixels
MARGIN = 16


def draw_terminal(colours: Colours) -> str:
    """An SVG of the session: the report on the fault, the fix as typed, the report after it."""
    lines = session(PAGE.read_text(encoding="utf-8"))
    width = round(max(map(len, lines)) * COLUMN) + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + (number + 0.75) * LINE:.1f}" '
        f'fill="{_colour(line, colours)}">{escape(line)}</text>'
        for number, line in enumerate(lines)
        if line
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-size="{SIZE}px" '
            'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace">',
            # A browser's own rule for text would come before what the picture as a whole has.
            "<style>text { white-space: pre }</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{colours["ground"]}"/>',
            *rows,
            "</svg>\n",
        ]
    )


def session(page: str) -> list[str]:
    """The lines of the terminal, out of the blocks that the page stores."""
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    report = next(block for block in blocks if "to fix:  /env/bin/python" in block)
    fixed = next(block for block in blocks if block.startswith("exit code 0\ntorchvision"))
    (fix,) = re.findall(r"to fix:  (.*)", report)
    summary = re.search(r"^(.*working: .*)$", fixed, re.MULTILINE)
    assert summary is not None, "the page ends with the summary of a report on what works"
    told = report.partition("\n")[2].partition("\nwhat a code means")[0].rstrip("\n")
    return [
        f"$ {COMMAND}",
        *told.splitlines(),
        "",
        f"$ {fix}",
        f"$ {COMMAND}",
        summary[1],
    ]


def _colour(line: str, colours: Colours) -> str:
    if line.startswith("$ "):
        return colours["text"]
    if "does not work" in line:
        return colours["ours"]
    if line.lstrip().startswith("to fix:"):
        return colours["other"]
    return colours["soft"]
