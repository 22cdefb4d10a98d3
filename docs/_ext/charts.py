"""The pictures of stored results."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from benchmarks import schema
from benchmarks.compare import OURS, PASSES, groups, speedup
from measurements import storage
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
KINDS = {
    "LLTM": ("ours", "-", "o"),
    "LSTM": ("other", "-", "s"),
    "LSTM, told to remember": ("other", "--", "^"),
    "GRU": ("third", "-", "D"),
}
"""The colour, the line and the marker for a kind of layer."""
WORD_MODELS = {
    "lltm": ("LLTM", "ours", "-", "o"),
    "lltm-halved": ("LLTM, c halved between chunks", "ours", "--", "^"),
    "lstm": ("LSTM", "other", "-", "s"),
    "gru": ("GRU", "third", "-", "D"),
}
"""The name, the color, the line and the marker for a model of `measurements/word_model.py`."""
DOCS = Path(__file__).resolve().parents[1]
PAUSE = DOCS / "use" / "pause.json"
LINES = {"forward": "-", "backward": "--"}
SEQUENCE = 256


def stored(name: str) -> schema.Report:
    return schema.read(RESULTS / f"{name}.json.xz")


class Run(NamedTuple):
    """Neighbouring columns with the same value."""

    value: str
    first: int
    last: int


def draw_matrix(colours: Colours) -> Figure:
    """What the fat wheel did beside each torch, on each Python."""
    data = json.loads((RESULTS / "environments.json").read_text(encoding="utf-8"))
    environments = {(e["torch"], e["python"]): e for e in data["environments"]}
    torches = sorted({torch for torch, _ in environments}, key=minor_of)
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
    for variant, first, last in neighbours(variants):
        glue, _, device = variant.rpartition("-")
        label = f"{glue.split('-')[0]}\n{device}"
        canvas.box((first + 1.35, 0.1, last - first + 0.9, 0.75), label, size=7.5)
    axes.text(1.2, 0.45, "served by", ha="right", va="center", **style)
    return figure


def minor_of(torch: str) -> tuple[int, int]:
    major, minor = torch.split(".")
    return int(major), int(minor)


def _threading_and_minor(python: str) -> tuple[str, str]:
    """Free-threaded Pythons come last."""
    match = re.search(r"\.(\d+)(t?)", python)
    assert match is not None, python
    return match[2], match[1]


def neighbours(values: list[str]) -> list[Run]:
    runs: list[Run] = []
    for column, value in enumerate(values):
        if runs and runs[-1].value == value:
            runs[-1] = runs[-1]._replace(last=column)
        else:
            runs.append(Run(value, column, column))
    return runs


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
    legend(figure, colours, marks, [*PARTS.values()], columns=len(PARTS))
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
        ticks = [2.0**power for power in range(5)]
        axes.set_yticks(ticks, [times(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_title(dtype, fontsize=9, color=colours["text"])
        axes.set_xlabel("size of the state", fontsize=8.5)
        finish(axes, colours)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    title = f"How many times as fast as nn.LSTM ({report.machine.gpu}, {SEQUENCE} steps)"
    figure.suptitle(title, fontsize=10, color=colours["text"])
    legend(figure, colours, handles, labels, columns=3)
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


def draw_pause(colours: Colours) -> Figure:
    """Accuracy by the length of a pause: a line for the median of the seeds, a band for all."""
    facts = json.loads(PAUSE.read_text(encoding="utf-8"))
    pauses, longest = facts["pauses"], facts["longest_trained"]
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(0, longest, color=colours["ground"])
    axes.text(6, 3, "trained", fontsize=8, color=colours["text"])
    for kind, (colour, line, marker) in KINDS.items():
        by_pause = [[100 * run[n] for run in facts["accuracy"][kind]] for n in range(len(pauses))]
        style = {"color": colours[colour], "linewidth": 2.5 if kind == "LLTM" else 1.5}
        least, most = [*map(min, by_pause)], [*map(max, by_pause)]
        axes.fill_between(pauses, least, most, color=colours[colour], alpha=0.12, linewidth=0)
        axes.plot(
            pauses,
            [*map(median, by_pause)],
            line,
            marker=marker,
            markersize=4,
            label=kind,
            **style,
        )
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xticks(pauses, [str(pause) for pause in pauses])
    axes.minorticks_off()
    axes.set_ylim(0, 102)
    axes.set_xlabel("blank rows after the digit", fontsize=8.5)
    axes.set_ylabel("% of held-out digits named rightly", fontsize=8.5)
    finish(axes, colours)
    legend(figure, colours, *axes.get_legend_handles_labels(), columns=len(KINDS))
    return figure


class WordCurve(NamedTuple):
    """The runs of a word model at its best rate, one a seed."""

    steps: list[int]
    losses: list[list[float]]
    seconds: list[list[float]]


def word_curves() -> dict[str, WordCurve]:
    document = storage.load(RESULTS / "h200" / "word-model.json.xz")
    assert isinstance(document, dict)
    curves = {}
    for model in WORD_MODELS:
        runs = [run for run in document["runs"] if run["model"] == model]
        rates = {run["rate"] for run in runs}
        by_rate = {rate: [run for run in runs if run["rate"] == rate] for rate in rates}
        best = min(by_rate.values(), key=lambda some: median(run["validation"] for run in some))
        curves[model] = WordCurve(
            best[0]["steps"], [run["losses"] for run in best], [run["seconds"] for run in best]
        )
    return curves


def draw_words(colours: Colours) -> Figure:
    """A word model's loss by step and by time: the median of the seeds, and a band for all."""
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    for model, curve in word_curves().items():
        name, colour, line, marker = WORD_MODELS[model]
        losses = [*zip(*curve.losses, strict=True)]
        seconds = [*map(median, zip(*curve.seconds, strict=True))]
        style = {"color": colours[colour], "linewidth": 2.5 if model == "lltm" else 1.5}
        for axes, places in ((by_step, curve.steps), (by_time, seconds)):
            least, most = [*map(min, losses)], [*map(max, losses)]
            axes.fill_between(places, least, most, color=colours[colour], alpha=0.12, linewidth=0)
            axes.plot(
                places,
                [*map(median, losses)],
                line,
                marker=marker,
                markersize=4,
                label=name,
                **style,
            )
    for axes, label in ((by_step, "steps"), (by_time, "seconds")):
        axes.set_xlim(left=0)
        axes.set_xlabel(label, fontsize=8.5)
        finish(axes, colours)
    by_step.set_ylabel("training loss, mean of 50 steps", fontsize=8.5)
    legend(figure, colours, *by_step.get_legend_handles_labels(), columns=len(WORD_MODELS))
    return figure


def times(ratio: float) -> str:
    """The label of a speedup."""
    return "as fast" if ratio == 1 else f"{ratio:g}x"


def legend(
    figure: Figure,
    colours: Colours,
    handles: Sequence[Artist],
    labels: Sequence[str],
    *,
    columns: int,
) -> None:
    """A legend below the figure."""
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
        labelcolor=colours["text"],
    )


def finish(axes: Axes, colours: Colours) -> None:
    """Give the axes of a chart the scheme's colours."""
    axes.set_facecolor("none")
    axes.tick_params(colors=colours["text"], labelsize=8.5)
    axes.xaxis.label.set_color(colours["text"])
    axes.yaxis.label.set_color(colours["text"])
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(colours["line"])
