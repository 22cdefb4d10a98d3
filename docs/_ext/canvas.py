"""What the site's pictures share: two schemes of colours, boxes and arrows."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

Colours = dict[str, str]
Place = tuple[float, float, float, float]
"""x, y, width and height of a rectangle, in the axes' units."""

#: Contrast of text on its ground is at least 4.5 in both. Colours that stand beside each other stay
#: apart for eyes without red or green cones: tests/test_colours.py.
SCHEMES: dict[str, Colours] = {
    "light": {
        "text": "#1b1f24",
        "soft": "#57606a",
        "line": "#8c959f",
        "ground": "#eaeef2",
        "ours": "#b45309",
        "other": "#0b5cad",
        "third": "#0f8f7a",
        "good": "#a9dbe0",
        "fair": "#fbe8b0",
        "bad": "#ea9f8c",
        "none": "#eaeef2",
    },
    "dark": {
        "text": "#e6edf3",
        "soft": "#a3adb8",
        "line": "#6e7681",
        "ground": "#262c36",
        "ours": "#f0a35e",
        "other": "#79b8ff",
        "third": "#1f9d8b",
        "good": "#1c6470",
        "fair": "#7a671e",
        "bad": "#6f2015",
        "none": "#262c36",
    },
}


@dataclass(frozen=True)
class Canvas:
    """Axes without ticks, to draw boxes on; colours are named as in SCHEMES."""

    axes: Axes
    colours: Colours

    @classmethod
    def clear(cls, axes: Axes, colours: Colours, *, width: float, height: float) -> Canvas:
        axes.set(xlim=(0, width), ylim=(0, height))
        axes.axis("off")
        return cls(axes, colours)

    def box(self, place: Place, label: str, *, fill: str = "ground", size: float = 9) -> None:
        """A box with round corners, and a label of that font size in its middle."""
        x, y, width, height = place
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=self.colours[fill],
                edgecolor=self.colours["line"],
                linewidth=0.8,
            )
        )
        self.label((x + width / 2, y + height / 2), label, size=size)

    def label(self, at: tuple[float, float], label: str, *, size: float = 9) -> None:
        """Text whose middle is there."""
        colour = self.colours["text"]
        self.axes.text(*at, label, ha="center", va="center", fontsize=size, color=colour)

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        style = {"arrowstyle": "-|>", "color": self.colours["soft"], "linewidth": 1.1}
        self.axes.annotate("", xy=end, xytext=start, arrowprops=style)
