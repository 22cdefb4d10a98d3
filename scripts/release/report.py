"""dist/report.html: shows a run on one page, which needs no other files."""

import re
from collections import Counter
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from engine.compat.records import VariantName
from release.manifest import CellEntry, Manifest

TEMPLATE = "report.html.j2"
LONGEST = 200_000  # characters of a log in the page; the log file is complete


def render(manifest: Manifest, dist: Path) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["megabytes"] = lambda size: f"{size / 1e6:.2f} MB"
    environment.filters["seconds"] = lambda value: f"{value:.1f} s"
    # A step that serves several cells counts in the first of them.
    counted: dict[str, str] = {}
    for name, cell in manifest.cells.items():
        for step in cell.steps:
            counted.setdefault(step, name)

    def own_seconds(name: str) -> str:
        steps = manifest.cells[name].steps.items()
        return f"{sum(took for step, took in steps if counted[step] == name):.1f} s"

    environment.filters["own_seconds"] = own_seconds
    rows, columns = grid(manifest)
    return environment.get_template(TEMPLATE).render(
        m=manifest,
        rows=rows,
        columns=columns,
        logs={name: _log(cell, dist) for name, cell in manifest.cells.items()},
        totals=Counter(cell.state for cell in manifest.cells.values()),
        counted=counted,
    )


def grid(manifest: Manifest) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Every cell of the matrix by glue and device, and the devices in order."""
    rows: dict[str, dict[str, str]] = {}
    names = [*manifest.cells, *(n for n in manifest.missing if n not in manifest.cells)]
    for name in names:
        found = re.fullmatch(r"(.+)-(cpu|cu\d+)(-\w+)?", name)  # the last is the platform
        assert found is not None
        rows.setdefault(found[1], {})[found[2]] = name
    columns = sorted({device for row in rows.values() for device in row})
    parsed = {glue: VariantName.parse(f"{glue}-cpu").glue for glue in rows}
    order = sorted(rows, key=lambda name: (parsed[name].lane != "stable", parsed[name].torch, name))
    return {glue: rows[glue] for glue in order}, columns


def _log(cell: CellEntry, dist: Path) -> str:
    try:
        text = (dist / str(cell.log)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    if len(text) <= LONGEST:
        return text
    return f"... ({len(text) - LONGEST} characters before this: {cell.log})\n{text[-LONGEST:]}"
