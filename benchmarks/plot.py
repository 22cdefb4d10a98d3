"""Draws a stored grid as heat maps: the fastest baseline over ours, by batch and state size."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from .contender import OURS
from .report import baselines, groups, of, speedup
from .schema import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(report: Report, stem: Path) -> Path:
    """Draw a report into ``<stem>.png``; returns the file.

    Raises:
        ValueError: the report is no grid, has no result of ours, or matplotlib is not installed.
    """
    if report.command != "grid":
        raise ValueError(f"{stem.name} is a run of {report.command}; plot needs a grid: use show")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ValueError("plot needs matplotlib: pip install matplotlib") from error
    mpl.use("Agg")
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_name(stem.name + ".png")
    _grid(report, path)
    return path


def _caption(report: Report) -> str:
    where = report.machine.gpu if report.device == "cuda" else report.machine.cpu
    return (
        f"{report.command}, {report.protocol} protocol, {where}, {report.threads} thread(s), "
        f"torch {report.software.torch}, commit {report.software.commit[:10]}"
    )


def _grid(report: Report, path: Path) -> None:
    import matplotlib.pyplot as plt

    panels: dict[tuple[int, str, str], dict[tuple[int, int], float]] = {}
    for (size, dtype, metric), results in groups(report).items():
        ours = of(results, OURS)
        if ours and (others := baselines(results)):
            panel = panels.setdefault((size.steps, dtype, metric), {})
            panel[size.batch, size.state] = min(speedup(other, ours) for other in others)
    if not panels:
        raise ValueError("the grid holds no result of ours: measure with the package installed")
    # One row of panels for each length of a sequence and dtype.
    lines = list(dict.fromkeys(sorted((steps, dtype) for steps, dtype, _ in panels)))
    columns = max(Counter((steps, dtype) for steps, dtype, _ in panels).values())
    shape = (4.6 * columns, 3.6 * len(lines))
    figure, axes = plt.subplots(len(lines), columns, figsize=shape, squeeze=False)
    for unused in axes.flat:
        unused.set_visible(False)
    drawn = Counter[tuple[int, str]]()
    for (steps, dtype, metric), cells in panels.items():
        line = steps, dtype
        axis = axes[lines.index(line)][drawn[line]]
        drawn[line] += 1
        axis.set_visible(True)
        batches = sorted({b for b, _ in cells})
        states = sorted({s for _, s in cells})
        values = [[cells.get((b, s), math.nan) for s in states] for b in batches]
        logs = [[math.log2(v) for v in row] for row in values]
        axis.imshow(logs, cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto")
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                if math.isnan(value):
                    continue  # not measured
                colour = "white" if abs(logs[i][j]) > 0.7 else "black"
                axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axis.set_xticks(range(len(states)), [str(s) for s in states])
        axis.set_yticks(range(len(batches)), [str(b) for b in batches])
        axis.set_xlabel("state size S (I = S/4)" if steps == 1 else "state size S (I = S)")
        axis.set_ylabel("batch size B")
        length = "" if steps == 1 else f"T {steps} "
        axis.set_title(f"{length}{dtype} {metric}: best baseline over ours", fontsize=9)
    _save(figure, report, path)


def _save(figure: Figure, report: Report, path: Path) -> None:
    import matplotlib.pyplot as plt

    caption_inches = 0.25  # for any height: tight_layout would leave a share of it, or too little
    top = 1 - caption_inches / figure.get_figheight()
    figure.suptitle(_caption(report), fontsize=8, y=(1 + top) / 2, va="center")
    figure.tight_layout(rect=(0, 0, 1, top))
    figure.savefig(path, dpi=130)
    plt.close(figure)
