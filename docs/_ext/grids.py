"""The pictures of stored grids and of sizes drawn at random."""

from __future__ import annotations

import math
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure

from benchmarks import schema
from benchmarks.compare import OURS, PASSES, SLOWER, baselines, groups, ratios, speedup
from benchmarks.speed_page import NAMES

from .canvas import Colours
from .charts import finish, legend, times

HeatMap = dict[tuple[int, int], float]
"""The fastest peer's time over ours, by batch and state size."""

DTYPES = {
    "float32": ("ours", "o"),
    "tf32": ("text", "^"),
    "float16": ("other", "s"),
    "bfloat16": ("third", "D"),
}
"""The colour and the marker of a dtype."""
STATES = (16, 64, 256, 1024, 4096)
"""The marked sizes of the state."""
SMALL = 7.5
"""The size of the smallest text, which a phone still shows legibly."""


class Panel(NamedTuple):
    """One heat map of a grid."""

    dtype: str
    metric: str


def heat_maps(report: schema.Report, steps: int) -> dict[Panel, HeatMap]:
    """The heat maps of the sequences of that length; those of one step have the length 1."""
    maps: dict[Panel, HeatMap] = {}
    for (size, dtype, metric), results in groups(report).items():
        peers = baselines(results.values())
        if size.steps == steps and peers and OURS in results:
            fastest = min(speedup(peer, results[OURS]) for peer in peers)
            maps.setdefault(Panel(dtype, metric), {})[size.batch, size.state] = fastest
    return maps


def draw_grid(report: schema.Report, colours: Colours, *, steps: int = 1) -> Figure:
    """A row of heat maps for each dtype, a column for each metric, and one scale for all."""
    maps = heat_maps(report, steps)
    rows = sorted({panel.dtype for panel in maps}, reverse=True)
    columns = list(dict.fromkeys(panel.metric for panel in maps))
    scale = scale_of(maps)
    palette = _palette(scale, colours)
    figure = Figure(figsize=(7.6, 1.9 * len(rows) + 1.1), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    for row, dtype in enumerate(rows):
        for column, metric in enumerate(columns):
            mesh = _draw_map(axes[row, column], maps[Panel(dtype, metric)], palette, scale)
            axes[row, column].set_title(f"{metric}, {dtype}", fontsize=8.5, color=colours["text"])
            finish(axes[row, column], colours)
        axes[row, 0].set_ylabel("rows B", fontsize=8.5)
    for axis in axes[-1]:
        axis.set_xlabel("size of the state S", fontsize=8.5)
    bar = figure.colorbar(mesh, ax=axes, aspect=30, pad=0.01)
    exponents = range(math.ceil(scale.vmin or 0), math.floor(scale.vmax or 0) + 1)
    bar.set_ticks([*exponents], labels=[times(2.0**exponent) for exponent in exponents])
    bar.ax.tick_params(colors=colours["text"], labelsize=SMALL)
    bar.outline.set_visible(False)  # type: ignore[operator]
    figure.suptitle(_title(report, steps), fontsize=10, color=colours["text"])
    return figure


def _title(report: schema.Report, steps: int) -> str:
    *others, last = sorted({name_of(peer.contender) for peer in baselines(report.results)})
    peers = f"\nthe fastest of {', '.join(others)} and {last}" if others else f" {last}"
    what = "One step" if steps == 1 else f"{steps} steps"
    return f"{what}: how many times as fast as{peers}, on {place_of(report)}"


def name_of(contender: str) -> str:
    return "nn.LSTMCell" if contender == "lstmcell" else NAMES[contender].strip("`")


def place_of(report: schema.Report) -> str:
    if report.device == "cpu":
        threads = "one thread" if report.threads == 1 else f"{report.threads} threads"
        return f"a CPU, {threads}"
    name = (report.machine.gpu or "GPU").removeprefix("NVIDIA ").split()[0]
    return f"an {name}"


def scale_of(maps: dict[Panel, HeatMap]) -> Normalize:
    """Of the logarithm to base 2, to both ends of what is stored and past what is level."""
    values = [math.log2(value) for heat_map in maps.values() for value in heat_map.values()]
    return Normalize(min(-0.5, *values), max(0.5, *values))


def _palette(scale: Normalize, colours: Colours) -> Colormap:
    """Orange for slower, blue for faster, the ground's colour for level."""
    level = float(scale(0))
    nodes = [(0.0, colours["ours"]), (level, colours["ground"]), (1.0, colours["other"])]
    return LinearSegmentedColormap.from_list("speedup", nodes, N=48)


def _draw_map(axis: Axes, heat_map: HeatMap, palette: Colormap, scale: Normalize) -> QuadMesh:
    batches = sorted({batch for batch, _ in heat_map})
    states = sorted({state for _, state in heat_map})
    logs = [
        [math.log2(heat_map.get((batch, state), math.nan)) for state in states] for batch in batches
    ]
    mesh = axis.pcolormesh(logs, cmap=palette, norm=scale)
    for (batch, state), value in heat_map.items():
        place = (states.index(state) + 0.5, batches.index(batch) + 0.5)
        text = f"{value:.2f}" if value < 10 else f"{value:.1f}"
        ink = _ink(to_rgb(palette(scale(math.log2(value)))))
        axis.text(*place, text, ha="center", va="center", fontsize=SMALL, color=ink)
    axis.set_xticks([place + 0.5 for place in range(len(states))], [str(state) for state in states])
    axis.set_yticks(
        [place + 0.5 for place in range(len(batches))], [str(batch) for batch in batches]
    )
    return mesh


def _ink(ground: tuple[float, float, float]) -> str:
    """Black or white, whichever is read better on this ground."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in ground
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if luminance > 0.179 else "#ffffff"


def draw_random(report: schema.Report, colours: Colours) -> Figure:
    """A row of plots for each peer, a column for each pass, a point for each draw."""
    drawn = ratios(report)
    peers = sorted({ratio.peer for ratio in drawn})
    figure = Figure(figsize=(7.6, 2.3 * len(peers) + 1.0), layout="constrained")
    axes = figure.subplots(len(peers), 2, squeeze=False, sharex=True, sharey=True)
    for row, peer in enumerate(peers):
        for column, metric in enumerate(PASSES):
            axis = axes[row, column]
            for dtype, (colour, marker) in DTYPES.items():
                chosen = [r for r in drawn if (r.peer, r.metric, r.dtype) == (peer, metric, dtype)]
                axis.plot(
                    [ratio.size.state for ratio in chosen],
                    [ratio.value for ratio in chosen],
                    linestyle="",
                    marker=marker,
                    markersize=3,
                    color=colours[colour],
                    label=dtype,
                )
            axis.axhline(1, color=colours["soft"], linewidth=0.8)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=2)
            axis.minorticks_off()
            axis.set_title(
                f"{metric}, against {name_of(peer)}", fontsize=8.5, color=colours["text"]
            )
            finish(axis, colours)
    values = [ratio.value for ratio in drawn]
    lowest = math.floor(math.log2(min(*values, SLOWER)))
    ticks = [2.0**power for power in range(lowest, math.ceil(math.log2(max(values))) + 1)]
    axes[0, 0].set_yticks(ticks, [times(tick) for tick in ticks])
    axes[0, 0].set_xticks(STATES, [str(state) for state in STATES])
    for axis in axes[-1]:
        axis.set_xlabel("size of the state S", fontsize=8.5)
    what = "layers" if any(ratio.size.steps > 1 for ratio in drawn) else "steps"
    draws = len({(ratio.size, ratio.dtype) for ratio in drawn})
    title = f"{draws} {what} of random sizes: how many times as fast, on {place_of(report)}"
    figure.suptitle(title, fontsize=10, color=colours["text"])
    legend(figure, colours, *figure.axes[0].get_legend_handles_labels(), columns=len(DTYPES))
    return figure
