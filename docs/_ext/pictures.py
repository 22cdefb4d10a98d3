"""Draws the pictures of the site and of README from stored data, each in a light and a dark form.

    python docs/_ext/pictures.py [FOLDER]

Needs matplotlib. The text in them stays text, so that it can be read aloud, searched and tested.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO))

from benchmarks import schema  # noqa: E402

RESULTS = REPO / "benchmarks" / "results"
#: Contrast of text on its ground is at least 4.5 in both.
SCHEMES = {
    "light": {
        "text": "#1b1f24", "soft": "#57606a", "line": "#8c959f", "ground": "#eaeef2",
        "ours": "#b45309", "other": "#0b5cad", "third": "#6639a6",
        "good": "#b7e4c0", "fair": "#fbe3a1", "bad": "#f3b8b4", "none": "#eaeef2",
    },
    "dark": {
        "text": "#e6edf3", "soft": "#a3adb8", "line": "#6e7681", "ground": "#262c36",
        "ours": "#f0a35e", "other": "#79b8ff", "third": "#d2a8ff",
        "good": "#1d5c31", "fair": "#6b5310", "bad": "#7d2b27", "none": "#262c36",
    },
}  # fmt: skip
Colours = dict[str, str]


def stored(name: str) -> schema.Report:
    return schema.read(RESULTS / f"{name}.json")


def groups(report: schema.Report) -> dict[tuple[schema.Size, str, str], dict[str, schema.Result]]:
    """The results by size, dtype and metric, then by contender."""
    found: dict[tuple[schema.Size, str, str], dict[str, schema.Result]] = {}
    for result in report.results:
        key = result.size, result.dtype, result.metric
        found.setdefault(key, {})[result.contender] = result
    return found


def plain(axes: Any, width: float, height: float) -> None:
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")


def box(
    axes: Any,
    place: tuple[float, float, float, float],
    text: str,
    fill: str,
    c: Colours,
    **more: Any,
) -> None:
    x, y, width, height = place
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=fill, edgecolor=c["line"], linewidth=0.8,
        )
    )  # fmt: skip
    more = {"ha": "center", "va": "center", "fontsize": 9, "color": c["text"], **more}
    axes.text(x + width / 2, y + height / 2, text, **more)


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], c: Colours) -> None:
    axes.annotate(
        "", xy=end, xytext=start,
        arrowprops={"arrowstyle": "-|>", "color": c["soft"], "linewidth": 1.1},
    )  # fmt: skip


def matrix(c: Colours) -> Figure:
    """What the fat wheel did beside each torch, on each Python."""
    data = json.loads((RESULTS / "environments.json").read_text())
    seen = {(e["torch"], e["python"]): e for e in data["environments"]}
    torches = sorted({t for t, _ in seen}, key=lambda t: int(t.split(".")[1]))
    minor = re.compile(r"\.(\d+)(t?)")  # free-threaded ones last
    pythons = sorted({p for _, p in seen}, key=lambda p: minor.search(p).group(2, 1))
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    axes = figure.subplots()
    plain(axes, len(torches) + 1.35, len(pythons) + 2.1)
    fills = {"ran": "good", "unsupported": "none"}
    words = {"ran": "ran", "unsupported": ""}
    for row, python in enumerate(reversed(pythons)):
        axes.text(
            1.2, row + 1.5, f"Python {python}", ha="right", va="center", color=c["text"], fontsize=9
        )
        for column, torch in enumerate(torches):
            state = seen.get((torch, python), {"state": "unsupported"})["state"]
            place = (column + 1.35, row + 1.06, 0.9, 0.88)
            box(axes, place, words.get(state, "fails"), c[fills.get(state, "bad")], c, fontsize=8)
    for column, torch in enumerate(torches):
        axes.text(column + 1.8, len(pythons) + 1.3, torch, ha="center", color=c["text"], fontsize=9)
    axes.text(1.2, len(pythons) + 1.3, "torch", ha="right", color=c["text"], fontsize=9)
    # Neighbours that are served by the same glue and the same CUDA.
    served: list[list[Any]] = []
    for column, torch in enumerate(torches):
        variant = next(e["variant"] for (t, _), e in seen.items() if t == torch and "variant" in e)
        if served and served[-1][0] == variant:
            served[-1][2] = column
        else:
            served.append([variant, column, column])
    for variant, first, last in served:
        glue, _, device = variant.rpartition("-")
        box(axes, (first + 1.35, 0.1, last - first + 0.9, 0.75), f"{glue.split('-')[0]}\n{device}",
            c["ground"], c, fontsize=7.5)  # fmt: skip
    axes.text(1.2, 0.45, "served by", ha="right", va="center", color=c["text"], fontsize=9)
    return figure


def verdict(c: Colours) -> Figure:
    """How a verdict is reached."""
    figure = Figure(figsize=(7.6, 3.3), layout="constrained")
    axes = figure.subplots()
    plain(axes, 12, 5.4)
    box(
        axes,
        (0.1, 3.5, 2.7, 1.5),
        "the file, read\nrecord, symbols,\nlibraries, GPU code",
        c["ground"],
        c,
    )
    box(
        axes,
        (0.1, 0.4, 2.7, 1.5),
        "the machine, asked\ntorch, Python, glibc,\ndriver, GPUs",
        c["ground"],
        c,
    )
    questions = ("system and C library", "Python", "torch's version and layout", "C++ ABI",
                 "CUDA major", "driver and GPU", "libraries and symbols")  # fmt: skip
    axes.add_patch(Rectangle((3.7, 0.15), 4.3, 5.0, fill=False, edgecolor=c["line"], linewidth=0.8))
    axes.text(5.85, 4.75, "judge(binary, runtime)", ha="center", va="center", fontsize=9.5,
              family="monospace", color=c["text"])  # fmt: skip
    for k, question in enumerate(questions):
        box(axes, (3.9, 3.95 - 0.6 * k, 3.9, 0.5), question, c["ground"], c, fontsize=8.5)
    results = (
        ("accepted\nall is known, all is safe", "good"),
        ("rejected\nthe cause, and the cure", "bad"),
        ("unknown\nnot loaded: it could crash", "fair"),
    )
    for k, (text, fill) in enumerate(results):
        box(axes, (8.9, 3.75 - 1.65 * k, 3.0, 1.2), text, c[fill], c, fontsize=8.5)
        arrow(axes, (8.05, 2.65), (8.85, 4.35 - 1.65 * k), c)
    arrow(axes, (2.85, 4.25), (3.65, 3.0), c)
    arrow(axes, (2.85, 1.15), (3.65, 2.4), c)
    return figure


def step(c: Colours) -> Figure:
    """Where the GPU's time of one small step goes, and how many launches it takes."""
    report = stored("h200/cell-cuda-kernels")
    names = {"python": "plain PyTorch", "cpp": "the tutorial's C++", "cuda": "the tutorial's CUDA",
             "ours": "lltm"}  # fmt: skip
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    for axes, metric in zip(
        figure.subplots(1, 2, sharey=True), ("forward", "backward"), strict=True
    ):
        for (size, dtype, found), results in groups(report).items():
            if (str(size), dtype, found) != ("B16 I32 S128", "float32", metric):
                continue
            for row, (name, _) in enumerate(reversed(names.items())):
                result = results[name]
                join, pointwise = (result.detail[part] for part in ("join_us", "pointwise_us"))
                product = result.median - join - pointwise
                parts = ((product, "other"), (pointwise, "ours"), (join, "third"))
                left = 0.0
                for value, colour in parts if name != "ours" else ((result.median, "good"),):
                    axes.barh(row, value, left=left, color=c[colour], height=0.6)
                    left += value
                text = f" {result.median:.1f} µs, {result.detail['launches']:.0f} launches"
                if result.detail["launches"] == 1:
                    text = text.removesuffix("es")
                axes.text(left, row, text, va="center", fontsize=8, color=c["text"])
        axes.set_yticks(range(len(names)), [*names.values()][::-1])
        axes.set_title(metric, fontsize=9, color=c["text"])
        axes.set_xlim(0, axes.get_xlim()[1] * 1.65)
        axes.set_xlabel("µs of the GPU", fontsize=8.5)
        finish(axes, c)
    marks = [Rectangle((0, 0), 1, 1, color=c[key]) for key in ("other", "ours", "third", "good")]
    words = (
        "matrix products",
        "gates, element by element",
        "putting [h, x] together",
        "all in one",
    )
    figure.legend(marks, words, loc="outside lower center", ncols=4, fontsize=8, frameon=False,
                  labelcolor=c["text"])  # fmt: skip
    return figure


def finish(axes: Any, c: Colours) -> None:
    axes.set_facecolor("none")
    axes.tick_params(colors=c["text"], labelsize=8.5)
    axes.xaxis.label.set_color(c["text"])
    axes.yaxis.label.set_color(c["text"])
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(c["line"])


def speed(c: Colours) -> Figure:
    """nn.LSTM's time over the layer's, by size of the state."""
    report = stored("h200/grid-layer-cuda")
    curves: dict[tuple[str, str, int], dict[int, float]] = {}
    for (size, dtype, metric), results in groups(report).items():
        ours, lstm = results.get("ours"), results.get("lstm")
        if (
            ours
            and lstm
            and metric != "inference"
            and size.steps == 256
            and size.batch in (1, 16, 64)
        ):
            curves.setdefault((dtype, metric, size.batch), {})[size.state] = schema.paired_ratio(
                lstm.rounds, ours.rounds
            )
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    for axes, dtype in zip(
        figure.subplots(1, 2, sharey=True), ("float32", "bfloat16"), strict=True
    ):
        for batch, colour, marker in ((1, "third", "s"), (16, "ours", "o"), (64, "other", "^")):
            for metric, line in (("forward", "-"), ("backward", "--")):
                curve = dict(sorted(curves.get((dtype, metric, batch), {}).items()))
                axes.plot(list(curve), list(curve.values()), line, color=c[colour], marker=marker,
                          markersize=4, label=f"batch {batch}, {metric}")  # fmt: skip
        axes.axhline(1, color=c["soft"], linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        sizes = sorted({state for curve in curves.values() for state in curve})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_yticks([1, 2, 4, 8, 16], ["as fast", "2x", "4x", "8x", "16x"])
        axes.minorticks_off()
        axes.set_title(dtype, fontsize=9, color=c["text"])
        axes.set_xlabel("size of the state", fontsize=8.5)
        finish(axes, c)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.suptitle(f"How many times as fast as nn.LSTM ({report.machine.gpu}, 256 steps)",
                    fontsize=10, color=c["text"])  # fmt: skip
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False,
                  labelcolor=c["text"])  # fmt: skip
    return figure


def kernels(c: Colours) -> Figure:
    """Where the recurrent weights stay while the persistent kernels run."""
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    titles = (
        "registers\nS up to 128",
        "cluster\nS up to 512",
        "grid\nS up to 24 for each multiprocessor",
    )
    for axes, title in zip(figure.subplots(1, 3), titles, strict=True):
        plain(axes, 6, 6.4)
        axes.set_title(title, fontsize=9, color=c["text"])
        kind = title.split("\n")[0]
        if kind == "registers":
            for k in range(3):
                y = 4.3 - 1.9 * k
                box(
                    axes,
                    (0.2, y, 3.9, 1.5),
                    "one multiprocessor\nall of W",
                    c["good"],
                    c,
                    fontsize=8,
                )
                box(
                    axes,
                    (4.4, y, 1.4, 1.5),
                    f"rows\n{4 * k}-{4 * k + 3}",
                    c["ground"],
                    c,
                    fontsize=8,
                )
        elif kind == "cluster":
            for k in range(2):
                y = 3.2 - 3.0 * k
                axes.add_patch(Rectangle((0.1, y), 4.1, 2.7, fill=False, edgecolor=c["line"]))
                for part in range(4):
                    place = (0.25 + 0.97 * part, y + 0.85, 0.9, 1.65)
                    box(axes, place, f"W\n{part + 1}/4", c["good"], c, fontsize=8)
                axes.text(2.15, y + 0.4, "h through shared memory", ha="center", va="center",
                          fontsize=7.5, color=c["text"])  # fmt: skip
                box(axes, (4.4, y + 0.6, 1.5, 1.6), f"row\n{k}", c["ground"], c, fontsize=8)
        else:
            for k in range(12):
                column, row = k % 4, k // 4
                place = (0.15 + 1.45 * column, 4.7 - 1.15 * row, 1.3, 1.0)
                box(axes, place, f"W {k + 1}", c["good"], c, fontsize=8)
            box(axes, (0.15, 0.9, 5.65, 1.1), "h through the L2 cache", c["ground"], c, fontsize=8)
            rest = "what does not fit is read again in each step"
            axes.text(3, 0.4, rest, ha="center", va="center", fontsize=7.5, color=c["text"])
    return figure


PICTURES: dict[str, Callable[[Colours], Figure]] = {
    "matrix": matrix,
    "verdict": verdict,
    "step": step,
    "speed": speed,
    "kernels": kernels,
}


def draw(folder: Path) -> None:
    """All pictures, the same bytes from the same data."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"svg.fonttype": "none", "svg.hashsalt": "lltm", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        for name, make in PICTURES.items():
            for scheme, colours in SCHEMES.items():
                path = folder / f"{name}-{scheme}.svg"
                make(colours).savefig(path, transparent=True, metadata={"Date": None})
                text = path.read_text(encoding="utf-8")
                path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if sys.argv[1:] else REPO / "docs" / "pictures")
