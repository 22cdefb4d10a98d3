"""Pictures of stored results: bars with their spread, and the grid as a heat map."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from .baselines import OURS
from .report import NO_SIZES, NOT_BASELINES, groups, of, speedup
from .schema import Report, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS_COLOUR, OTHER_COLOUR = "#c2410c", "#64748b"


def draw(report: Report, stem: Path) -> list[Path]:
    """Draw a report into ``<stem>.png`` and return what was written.

    Raises:
        ValueError: the report has no result, or matplotlib is not installed.
    """
    if not report.results:
        raise ValueError(f"{stem.name} holds no result: there is nothing to draw")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ValueError("plot needs matplotlib: pip install matplotlib") from error
    mpl.use("Agg")
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_name(stem.name + ".png")
    (_grid if report.command == "grid" else _bars)(report, path)
    return [path]


def _caption(report: Report) -> str:
    where = report.machine.gpu if report.device == "cuda" else report.machine.cpu
    return (
        f"{report.command}, {report.protocol} protocol, {where}, {report.threads} thread(s), "
        f"torch {report.software.torch}, commit {report.software.commit[:10]}"
    )


def _bars(report: Report, path: Path) -> None:
    import matplotlib.pyplot as plt

    panels = list(groups(report))
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5.2 * columns, 0.9 + 2.6 * rows), squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (size, dtype, metric, results) in zip(axes.flat, panels, strict=False):
        shown = [r for r in results if r.contender not in NOT_BASELINES][::-1]
        scale, unit = (1e6, "MB") if shown[0].unit == "bytes" else (1.0, shown[0].unit)
        medians = [r.median / scale for r in shown]
        spread = [
            [(r.median - r.q1) / scale for r in shown],
            [(r.q3 - r.median) / scale for r in shown],
        ]
        colours = [OURS_COLOUR if r.contender == OURS else OTHER_COLOUR for r in shown]
        names = [r.contender for r in shown]
        bars = axis.barh(names, medians, xerr=spread, color=colours, error_kw={"lw": 0.8})
        ours = of(results, OURS)
        if ours and unit != "ms":
            labels = [f"{speedup(r, ours):.2f}x" for r in shown]
            axis.bar_label(bars, labels, padding=3, fontsize=7)
            axis.margins(x=0.15)
        if ours and ours.floor and ours.floor.us > 0:
            axis.axvline(ours.floor.us, color="black", lw=0.8, ls=":")
        what = "" if report.command in NO_SIZES else f"{size} {dtype} "
        axis.set_title(f"{what}{metric}", fontsize=9)
        dotted = "" if report.command in NO_SIZES else "; dotted: modelled floor"
        axis.set_xlabel(f"{unit}, median and quartiles{dotted}", fontsize=7)
        axis.tick_params(labelsize=7)
    _save(figure, report, path)


def _grid(report: Report, path: Path) -> None:
    import matplotlib.pyplot as plt

    panels: dict[tuple[int, str, str], dict[tuple[int, int], float]] = {}
    for size, dtype, metric, results in groups(report):
        ratio = _worst(results)
        if ratio is not None:
            panels.setdefault((size.steps, dtype, metric), {})[size.batch, size.state] = ratio
    if not panels:
        raise ValueError("the grid holds no result of ours: measure with the package installed")
    # A row for each length of a sequence and dtype.
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


def _worst(results: list[Result]) -> float | None:
    """Ours against the quickest baseline."""
    ours = of(results, OURS)
    others = [
        speedup(r, ours)
        for r in results
        if ours and r is not ours and r.contender not in NOT_BASELINES
    ]
    return min(others, default=None)


def _save(figure: Figure, report: Report, path: Path) -> None:
    import matplotlib.pyplot as plt

    caption_inches = 0.25  # whatever the height: tight_layout leaves a share of it, or too little
    top = 1 - caption_inches / figure.get_figheight()
    figure.suptitle(_caption(report), fontsize=8, y=(1 + top) / 2, va="center")
    figure.tight_layout(rect=(0, 0, 1, top))
    figure.savefig(path, dpi=130)
    plt.close(figure)
