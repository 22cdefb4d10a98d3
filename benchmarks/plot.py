"""Draws a stored grid as heat maps (the fastest baseline's time over ours, by batch and state size)
and a stored run of random draws as points (torch's time over ours, by state size)."""

import math
from pathlib import Path
from typing import Any

from .contender import OURS
from .report import PASSES, SLOWER, baselines, groups, ratios, speedup
from .schema import Report
from .targets import NAMES

HeatMap = dict[tuple[int, int], float]
"""The fastest baseline's time over ours, by batch and state size."""


def draw(report: Report, stem: Path) -> Path:
    if report.command not in ("grid", "random"):
        raise ValueError(
            f"{stem.name} is a run of {report.command}; plot needs a grid or random draws: use show"
        )
    try:
        drawn = figure(report) if report.command == "grid" else points(report)
    except ImportError as error:
        raise ValueError("plot needs matplotlib: pip install matplotlib") from error
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_name(stem.name + ".png")
    drawn.savefig(path, dpi=130)
    return path


def figure(report: Report) -> Any:
    """Draw a row of heat maps for each sequence length and dtype, with a column for each metric."""
    from matplotlib.figure import Figure

    rows: dict[tuple[int, str], dict[str, HeatMap]] = {}
    names: set[str] = set()
    for (size, dtype, metric), results in groups(report).items():
        others = baselines(results.values())
        if others and OURS in results:
            cells = rows.setdefault((size.steps, dtype), {}).setdefault(metric, {})
            cells[size.batch, size.state] = min(speedup(o, results[OURS]) for o in others)
            names |= {NAMES.get(o.contender, o.contender).strip("`") for o in others}
    if not rows:
        raise ValueError("no size has ours and a baseline: install the package, and measure both")
    columns = max(map(len, rows.values()))
    shape = (4.6 * columns, 3.6 * len(rows) + 0.25)
    drawn = Figure(figsize=shape, layout="constrained")
    axes = drawn.subplots(len(rows), columns, squeeze=False)
    for (steps, dtype), line in zip(sorted(rows), axes, strict=True):
        for axis in line:
            axis.set_visible(False)  # until it gets a metric
        for axis, (metric, cells) in zip(line, rows[steps, dtype].items(), strict=False):
            axis.set_visible(True)
            image = _draw_map(axis, cells)
            state = "state size S (I = S/4)" if steps == 1 else "state size S (I = S)"
            axis.set(xlabel=state, ylabel="batch size B")
            what = "one step" if steps == 1 else f"{steps} steps"
            axis.set_title(f"{metric} of {what}, {dtype}", fontsize=9)
    bar = drawn.colorbar(image, ax=axes, ticks=[-1, 0, 1], shrink=0.5)
    bar.ax.set_yticklabels(["half as fast", "level", "twice or more"])
    best = f"How many times as fast ours is as the fastest of: {', '.join(sorted(names))}"
    drawn.suptitle(f"{best}\n{_caption(report)}", fontsize=9)
    return drawn


def points(report: Report) -> Any:
    """Draw a plot for each pass, with a point for each draw and peer, coloured by dtype."""
    from matplotlib.figure import Figure

    every = ratios(report)
    if not every:
        raise ValueError("no draw has ours and a peer: install the package, and measure both")
    drawn = Figure(figsize=(10, 4), layout="constrained")
    for axis, metric in zip(drawn.subplots(1, 2, sharey=True), PASSES, strict=True):
        for dtype in dict.fromkeys(r.dtype for r in every):
            chosen = [r for r in every if r.metric == metric and r.dtype == dtype]
            axis.scatter([r.size.state for r in chosen], [r.value for r in chosen], 12, label=dtype)
        axis.axhline(SLOWER, color="black", linewidth=0.8)
        axis.set_yscale("log", base=2)
        axis.set(xlabel="state size S", ylabel="torch's time over ours", title=metric)
        axis.legend()
    drawn.suptitle(_caption(report), fontsize=8)
    return drawn


def _caption(report: Report) -> str:
    m, s = report.machine, report.software
    where = f"{m.gpu or m.cpu}, {report.threads} thread(s)"
    text = f"{report.command}, {report.protocol} protocol, {where}, "
    return f"{text}torch {s.torch}, commit {s.commit[:10]}"


def _draw_map(axis: Any, cells: HeatMap) -> Any:
    batches = sorted({b for b, _ in cells})
    states = sorted({s for _, s in cells})
    logs = [[math.log2(cells.get((b, s), math.nan)) for s in states] for b in batches]
    image = axis.imshow(logs, cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto")
    for (b, s), value in cells.items():
        colour = "white" if abs(math.log2(value)) > 0.7 else "black"
        place = states.index(s), batches.index(b)
        axis.text(*place, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(states)), [str(s) for s in states])
    axis.set_yticks(range(len(batches)), [str(b) for b in batches])
    return image
