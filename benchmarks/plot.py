"""Draws a stored grid as heat maps: the fastest baseline over ours, by batch and state size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from .contender import OURS
from .report import baselines, groups, of, speedup
from .schema import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HeatMap = dict[tuple[int, int], float]
"""Baseline over ours, by batch and state size."""


def draw(report: Report, stem: Path) -> Path:
    """Draw a report into ``<stem>.png``; returns the file."""
    if report.command != "grid":
        raise ValueError(f"{stem.name} is a run of {report.command}; plot needs a grid: use show")
    try:
        drawn = figure(report)
    except ImportError as error:
        raise ValueError("plot needs matplotlib: pip install matplotlib") from error
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_name(stem.name + ".png")
    drawn.savefig(path, dpi=130)
    return path


def figure(report: Report) -> Figure:
    """One row of heat maps for each sequence length and dtype, one column for each metric."""
    from matplotlib.figure import Figure

    rows: dict[tuple[int, str], dict[str, HeatMap]] = {}
    for (size, dtype, metric), results in groups(report).items():
        ours = of(results, OURS)
        if ours and (others := baselines(results)):
            row = rows.setdefault((size.steps, dtype), {})
            cells = row.setdefault(metric, {})
            cells[size.batch, size.state] = min(speedup(other, ours) for other in others)
    if not rows:
        raise ValueError("the grid holds no result of ours: measure with the package installed")
    columns = max(map(len, rows.values()))
    shape = (4.6 * columns, 3.6 * len(rows) + 0.25)
    drawn = Figure(figsize=shape, layout="constrained")
    axes = drawn.subplots(len(rows), columns, squeeze=False)
    for (steps, dtype), line in zip(sorted(rows), axes, strict=True):
        for axis in line:
            axis.set_visible(False)  # until a metric takes it
        for axis, (metric, cells) in zip(line, rows[steps, dtype].items(), strict=False):
            axis.set_visible(True)
            _draw_map(axis, cells)
            axis.set_xlabel("state size S (I = S/4)" if steps == 1 else "state size S (I = S)")
            axis.set_ylabel("batch size B")
            length = "" if steps == 1 else f"T {steps} "
            axis.set_title(f"{length}{dtype} {metric}: best baseline over ours", fontsize=9)
    m, s = report.machine, report.software
    caption = f"grid, {report.protocol} protocol, {m.gpu or m.cpu}, {report.threads} thread(s), "
    drawn.suptitle(f"{caption}torch {s.torch}, commit {s.commit[:10]}", fontsize=8)
    return drawn


def _draw_map(axis: Axes, cells: HeatMap) -> None:
    batches = sorted({b for b, _ in cells})
    states = sorted({s for _, s in cells})
    logs = [[math.log2(cells.get((b, s), math.nan)) for s in states] for b in batches]
    axis.imshow(logs, cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto")
    for (b, s), value in cells.items():
        colour = "white" if abs(math.log2(value)) > 0.7 else "black"
        place = states.index(s), batches.index(b)
        axis.text(*place, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(states)), [str(s) for s in states])
    axis.set_yticks(range(len(batches)), [str(b) for b in batches])
