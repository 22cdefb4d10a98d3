"""Draws the pictures of the site and of README from stored data, each in a light and a dark form.

    python -m docs._ext.pictures [FOLDER]

Needs matplotlib. The text in them stays text, so that it can be read aloud, searched and tested.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from .canvas import SCHEMES, Colours
from .charts import draw_matrix, draw_pause, draw_speed, draw_step, draw_words, stored
from .diagrams import draw_choice, draw_kernels, draw_objects, draw_verdict
from .grids import draw_grid, draw_random
from .terminal import draw_terminal

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
PICTURES: dict[str, Callable[[Colours], Figure]] = {
    "matrix": draw_matrix,
    "verdict": draw_verdict,
    "choice": draw_choice,
    "objects": draw_objects,
    "step": draw_step,
    "speed": draw_speed,
    "kernels": draw_kernels,
    "pause": draw_pause,
    "word-model": draw_words,
    "grid-step-h200": lambda colours: draw_grid(stored("picked/grid-cuda"), colours),
    "grid-step-cpu": lambda colours: draw_grid(stored("cpu/grid-cpu"), colours),
    "grid-layer-16": lambda colours: _layer_grid(colours, steps=16),
    "grid-layer-256": lambda colours: _layer_grid(colours, steps=256),
    "random-layer": lambda colours: draw_random(stored("h200/random-layer-cuda"), colours),
    "random-step": lambda colours: draw_random(stored("h200/random-step-cuda"), colours),
}


def _layer_grid(colours: Colours, *, steps: int) -> Figure:
    return draw_grid(stored("picked/grid-layer-cuda"), colours, steps=steps)


def short(svg: str) -> str:
    """A tenth of a pixel, no indentation, and a name for a style: a third of matplotlib's bytes."""
    svg = "".join(f"{line.strip()}\n" for line in svg.splitlines())
    # Within tags alone: 2.10 in a text is a version.
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d\.\d)\d+", r"\1", tag[0]), svg)
    uses = Counter(re.findall(r' style="([^"]*)"', svg))
    names = {style: f"s{n}" for n, (style, count) in enumerate(uses.items()) if count > 2}
    svg = re.sub(
        r' style="([^"]*)"',
        lambda match: f' class="{names[match[1]]}"' if match[1] in names else match[0],
        svg,
    )
    rules = "".join(f".{name}{{{style}}}\n" for style, name in names.items())
    return svg.replace("</style>", f"\n{rules}</style>", 1)


def draw(folder: Path) -> None:
    """All pictures, the same bytes from the same data."""
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "lltm"
    matplotlib.rcParams["font.family"] = "sans-serif"
    for name, make in PICTURES.items():
        for scheme, colours in SCHEMES.items():
            path = folder / f"{name}-{scheme}.svg"
            make(colours).savefig(path, transparent=True, metadata={"Date": None})
            path.write_text(short(path.read_text(encoding="utf-8")), encoding="utf-8")
    for scheme, colours in SCHEMES.items():
        (folder / f"terminal-{scheme}.svg").write_text(draw_terminal(colours), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
