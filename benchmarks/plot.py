"""Draws a stored grid as heat maps (the fastest baseline's time over ours, by batch and state
size) and a stored run of random draws as points (torch's time over ours, by state size)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from .compare import OURS, PASSES, SLOWER, baselines, groups, ratios, speedup
from .schema import Report
from .speed_page import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

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
    path = stem.with_name(f"{stem.name}.png")
    drawn.savefig(path, dpi=DOTS)
    return path


DOTS = 100
"""Dots an inch of a picture."""


def heat_maps(report: Report) -> dict[tuple[int, str], dict[str, HeatMap]]:
    """The heat maps of a grid by sequence length and dtype, then by metric."""
    maps: dict[tuple[int, str], dict[str, HeatMap]] = {}
    for (size, dtype, metric), results in groups(report).items():
        contenders = baselines(results.values())
        if contenders and OURS in results:
            heat_map = maps.setdefault((size.steps, dtype), {}).setdefault(metric, {})
            ours = results[OURS]
            heat_map[size.batch, size.state] = min(speedup(other, ours) for other in contenders)
    return maps


def figure(report: Report) -> Figure:
    """Draw a row of heat maps for each sequence length and dtype, with a column for each metric."""
    from matplotlib.figure import Figure

    rows = heat_maps(report)
    if not rows:
        raise ValueError("no size has ours and a baseline: install the package, and measure both")
    columns = max(map(len, rows.values()))
    shape = (4.6 * columns, 3.6 * len(rows) + 0.25)
    drawn = Figure(figsize=shape, layout="constrained")
    axes = drawn.subplots(len(rows), columns, squeeze=False)
    for (steps, dtype), line in zip(sorted(rows), axes, strict=True):
        for axis in line:
            axis.set_visible(False)  # until it gets a metric
        for axis, (metric, heat_map) in zip(line, rows[steps, dtype].items(), strict=False):
            axis.set_visible(True)
            image = _draw_map(axis, heat_map)
            state = "state size S (I = S/4)" if steps == 1 else "state size S (I = S)"
            axis.set(xlabel=state, ylabel="batch size B")
            length = "one step" if steps == 1 else f"{steps} steps"
            axis.set_title(f"{metric} of {length}, {dtype}", fontsize=9)
    bar = drawn.colorbar(image, ax=axes, ticks=[-1, 0, 1], shrink=0.5)
    bar.ax.set_yticklabels(["half as fast", "level", "twice or more"])
    contenders = {result.contender for result in baselines(report.results)}
    names = sorted(NAMES.get(name, name).strip("`") for name in contenders)
    title = f"How many times as fast ours is as the fastest of: {', '.join(names)}"
    drawn.suptitle(f"{title}\n{_caption(report)}", fontsize=9)
    return drawn


def points(report: Report) -> Figure:
    """Draw a plot for each pass, with a point for each draw and peer, coloured by dtype."""
    from matplotlib.figure import Figure

    drawn_ratios = ratios(report)
    if not drawn_ratios:
        raise ValueError("no draw has ours and a peer: install the package, and measure both")
    drawn = Figure(figsize=(10, 4), layout="constrained")
    for axis, metric in zip(drawn.subplots(1, 2, sharey=True), PASSES, strict=True):
        for dtype in dict.fromkeys(ratio.dtype for ratio in drawn_ratios):
            chosen = [r for r in drawn_ratios if r.metric == metric and r.dtype == dtype]
            axis.scatter([r.size.state for r in chosen], [r.value for r in chosen], 12, label=dtype)
        axis.axhline(SLOWER, color="black", linewidth=0.8)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}x")
        axis.set(xlabel="state size S", ylabel="torch's time over ours", title=metric)
        axis.legend()
    drawn.suptitle(_caption(report), fontsize=8)
    return drawn


def _caption(report: Report) -> str:
    machine = report.machine
    software = report.software
    where = f"{machine.gpu or machine.cpu}, {report.threads} thread(s)"
    return (
        f"{report.command}, {report.protocol} protocol, {where}, "
        f"torch {software.torch}, commit {software.commit[:10]}"
    )


def _draw_map(axis: Axes, heat_map: HeatMap) -> AxesImage:
    batches = sorted({batch for batch, _ in heat_map})
    states = sorted({state for _, state in heat_map})
    logs = [
        [math.log2(heat_map.get((batch, state), math.nan)) for state in states] for batch in batches
    ]
    image = axis.imshow(logs, cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto")
    for (batch, state), value in heat_map.items():
        colour = "white" if abs(math.log2(value)) > 0.7 else "black"
        place = (states.index(state), batches.index(batch))
        axis.text(*place, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(states)), [str(state) for state in states])
    axis.set_yticks(range(len(batches)), [str(batch) for batch in batches])
    return image
