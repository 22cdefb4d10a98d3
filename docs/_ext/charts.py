"""The pictures of stored results."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from benchmarks import schema
from benchmarks.compare import OURS, PASSES, groups, speedup
from measurements.storage import RESULTS

from .canvas import Canvas, Colours

STATES = {"ran": ("ran", "good"), "unsupported": ("", "none")}
"""The word and the colour for a state of an environment; for others, "fails"."""
CONTENDERS = {
    OURS: "lltm",
    "cuda": "the tutorial's CUDA",
    "cpp": "the tutorial's C++",
    "python": "plain PyTorch",
}
"""From the bottom of the picture to its top."""
PARTS = {
    "other": "matrix products",
    "ours": "gates, element by element",
    "third": "putting [h, x] together",
    "good": "all in one",
}
BATCHES = {1: ("third", "s"), 16: ("ours", "o"), 64: ("other", "^")}
"""The colour and the marker for a batch size."""
LINES = {"forward": "-", "backward": "--"}
SEQUENCE = 256


def stored(name: str) -> schema.Report:
    return schema.read(RESULTS / f"{name}.json.xz")


class Served(NamedTuple):
    """Neighbouring torches that are served by the same variant, by their columns."""

    variant: str
    first: int
    last: int


def draw_matrix(colours: Colours) -> Figure:
    """What the fat wheel did beside each torch, on each Python."""
    data = json.loads((RESULTS / "environments.json").read_text(encoding="utf-8"))
    environments = {(e["torch"], e["python"]): e for e in data["environments"]}
    torches = sorted({torch for torch, _ in environments}, key=_minor)
    pythons = sorted({python for _, python in environments}, key=_threading_and_minor)
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    axes = figure.subplots()
    canvas = Canvas.clear(axes, colours, width=len(torches) + 1.35, height=len(pythons) + 2.1)
    style = {"color": colours["text"], "fontsize": 9}
    for row, python in enumerate(reversed(pythons)):
        axes.text(1.2, row + 1.5, f"Python {python}", ha="right", va="center", **style)
        for column, torch in enumerate(torches):
            state = environments.get((torch, python), {"state": "unsupported"})["state"]
            word, fill = STATES.get(state, ("fails", "bad"))
            canvas.box((column + 1.35, row + 1.06, 0.9, 0.88), word, fill=fill, size=8)
    for column, torch in enumerate(torches):
        axes.text(column + 1.8, len(pythons) + 1.3, torch, ha="center", **style)
    axes.text(1.2, len(pythons) + 1.3, "torch", ha="right", **style)
    variants = [
        next(e["variant"] for (t, _), e in environments.items() if t == torch and "variant" in e)
        for torch in torches
    ]
    for variant, first, last in _neighbours(variants):
        glue, _, device = variant.rpartition("-")
        label = f"{glue.split('-')[0]}\n{device}"
        canvas.box((first + 1.35, 0.1, last - first + 0.9, 0.75), label, size=7.5)
    axes.text(1.2, 0.45, "served by", ha="right", va="center", **style)
    return figure


def _minor(torch: str) -> int:
    return int(torch.split(".")[1])


def _threading_and_minor(python: str) -> tuple[str, str]:
    """Free-threaded Pythons come last."""
    match = re.search(r"\.(\d+)(t?)", python)
    assert match is not None, python
    return match[2], match[1]


def _neighbours(variants: list[str]) -> list[Served]:
    served: list[Served] = []
    for column, variant in enumerate(variants):
        if served and served[-1].variant == variant:
            served[-1] = served[-1]._replace(last=column)
        else:
            served.append(Served(variant, column, column))
    return served


def draw_step(colours: Colours) -> Figure:
    """Where the GPU's time of one small step goes, and how many launches it takes."""
    grouped = groups(stored("picked/cell-cuda-kernels"))
    size = schema.Size(16, 32, 128)
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 2, sharey=True), PASSES, strict=True):
        results = grouped[size, "float32", metric]
        for row, name in enumerate(CONTENDERS):
            _draw_bar(axes, row, results[name], colours)
        axes.set_yticks(range(len(CONTENDERS)), [*CONTENDERS.values()])
        axes.set_title(metric, fontsize=9, color=colours["text"])
        axes.set_xlim(0, axes.get_xlim()[1] * 1.65)
        axes.set_xlabel("µs of the GPU", fontsize=8.5)
        finish(axes, colours)
    marks = [Rectangle((0, 0), 1, 1, color=colours[key]) for key in PARTS]
    figure.legend(
        marks,
        [*PARTS.values()],
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
        labelcolor=colours["text"],
    )
    return figure


def _draw_bar(axes: Axes, row: int, result: schema.Result, colours: Colours) -> None:
    """The parts of a step's time, one after the other; ours is one part."""
    join = result.detail["join_us"]
    pointwise = result.detail["pointwise_us"]
    parts = {"other": result.median - join - pointwise, "ours": pointwise, "third": join}
    left = 0.0
    for key, value in parts.items() if result.contender != OURS else [("good", result.median)]:
        axes.barh(row, value, left=left, color=colours[key], height=0.6)
        left += value
    launches = int(result.detail["launches"])
    word = "launch" if launches == 1 else "launches"
    label = f" {result.median:.1f} µs, {launches} {word}"
    axes.text(left, row, label, va="center", fontsize=8, color=colours["text"])


def draw_speed(colours: Colours) -> Figure:
    """nn.LSTM's time over the layer's, by size of the state."""
    report = stored("picked/grid-layer-cuda")
    curves = speed_curves(report)
    sizes = sorted({state for curve in curves.values() for state in curve})
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    both_axes = figure.subplots(1, 2, sharey=True)
    for axes, dtype in zip(both_axes, ("float32", "bfloat16"), strict=True):
        for batch, (colour, marker) in BATCHES.items():
            for metric, line in LINES.items():
                curve = dict(sorted(curves.get((dtype, metric, batch), {}).items()))
                axes.plot(
                    list(curve),
                    list(curve.values()),
                    line,
                    color=colours[colour],
                    marker=marker,
                    markersize=4,
                    label=f"batch {batch}, {metric}",
                )
        axes.axhline(1, color=colours["soft"], linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_yticks([1, 2, 4, 8, 16], ["as fast", "2x", "4x", "8x", "16x"])
        axes.minorticks_off()
        axes.set_title(dtype, fontsize=9, color=colours["text"])
        axes.set_xlabel("size of the state", fontsize=8.5)
        finish(axes, colours)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    title = f"How many times as fast as nn.LSTM ({report.machine.gpu}, {SEQUENCE} steps)"
    figure.suptitle(title, fontsize=10, color=colours["text"])
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
        labelcolor=colours["text"],
    )
    return figure


def speed_curves(report: schema.Report) -> dict[tuple[str, str, int], dict[int, float]]:
    """The ratios by dtype, pass and batch size, then by the size of the state."""
    curves: dict[tuple[str, str, int], dict[int, float]] = {}
    for (size, dtype, metric), results in groups(report).items():
        is_shown = size.steps == SEQUENCE and size.batch in BATCHES and metric in PASSES
        if is_shown and {OURS, "lstm"} <= results.keys():
            curve = curves.setdefault((dtype, metric, size.batch), {})
            curve[size.state] = speedup(results["lstm"], results[OURS])
    return curves


def finish(axes: Axes, colours: Colours) -> None:
    """Give the axes of a chart the scheme's colours."""
    axes.set_facecolor("none")
    axes.tick_params(colors=colours["text"], labelsize=8.5)
    axes.xaxis.label.set_color(colours["text"])
    axes.yaxis.label.set_color(colours["text"])
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(colours["line"])
