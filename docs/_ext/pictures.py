"""Draws the pictures of the site and of README from stored data, each in a light and a dark form.

    python -m docs._ext.pictures [FOLDER]

Needs matplotlib. The text in them stays text, so that it can be read aloud, searched and tested.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from .canvas import SCHEMES, Colours
from .charts import draw_abis, draw_matrix, draw_pause, draw_speed, draw_step, draw_words, stored
from .diagrams import draw_choice, draw_kernels, draw_objects, draw_verdict
from .grids import draw_grid, draw_random
from .terminal import draw_terminal

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
PICTURES: dict[str, Callable[[Colours], Figure]] = {
    "matrix": draw_matrix,
    "verdict": draw_verdict,
    "choice": draw_choice,
    "objects": draw_objects,
    "abis": draw_abis,
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


def shortened(svg: str) -> str:
    """A picture with tenths of a pixel and without indentation: matplotlib's are twice as large.

    What stands between tags is text, in which 2.10 is another number than 2.1.
    """
    in_tags = re.sub(
        r"<[^!>][^>]*>", lambda tag: re.sub(r"(\d\.\d)\d+", r"\1", tag[0]), svg, flags=re.DOTALL
    )
    return "".join(f"{line.strip()}\n" for line in in_tags.splitlines())


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
            path.write_text(shortened(path.read_text(encoding="utf-8")), encoding="utf-8")
    for scheme, colours in SCHEMES.items():
        (folder / f"terminal-{scheme}.svg").write_text(draw_terminal(colours), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
