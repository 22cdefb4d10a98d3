"""The colours of the pictures: apart for every eye, legible, and the same wherever they stand.

Eyes without red cones (protanopia) or without green ones (deuteranopia) are simulated by the
matrices of Machado, Oliveira and Fernandes (2009) for linear RGB.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from docs._ext import canvas, charts, grids

REPO = Path(__file__).resolve().parents[1]

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]

EYES: dict[str, Matrix] = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
XYZ: Matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE: Triple = (0.95047, 1.0, 1.08883)

#: Of CIELAB; two colours side by side are told apart from about 2 on, small marks from about 10 on.
APART = 15
#: The colours that tell one thing from another in one picture.
TOGETHER = {
    "states": {"good", "fair", "bad"},
    "parts of a step": set(charts.PARTS),
    "batch sizes": {colour for colour, _ in charts.BATCHES.values()},
    "kinds of layers": {colour for colour, _, _ in charts.KINDS.values()},
    "dtypes": {colour for colour, _ in grids.DTYPES.values()},
    "slower, level, faster": {"ours", "ground", "other"},
}


def linear(colour: str) -> Triple:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return red, green, blue


def times(matrix: Matrix, vector: Triple) -> Triple:
    first, second, third = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return first, second, third


def ratios_to_white(seen: Triple) -> list[float]:
    return [part / white for part, white in zip(times(XYZ, seen), WHITE, strict=True)]


def lab(colour: str, eye: str) -> Triple:
    seen = times(EYES[eye], linear(colour))
    red, green, blue = (min(1.0, max(0.0, part)) for part in seen)
    x, y, z = (
        ratio ** (1 / 3) if ratio > 0.008856 else 7.787 * ratio + 16 / 116
        for ratio in ratios_to_white((red, green, blue))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_colours_that_tell_things_apart_differ_for_every_eye() -> None:
    close = {
        (name, scheme, eye, one, other): round(distance, 1)
        for name, keys in TOGETHER.items()
        for scheme, colours in canvas.SCHEMES.items()
        for eye in EYES
        for one, other in itertools.combinations(sorted(keys), 2)
        if (distance := math.dist(lab(colours[one], eye), lab(colours[other], eye))) < APART
    }
    assert close == {}


def luminance(colour: str) -> float:
    return times(XYZ, linear(colour))[1]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_text_is_legible_on_every_box() -> None:
    weak = {
        (scheme, fill): round(contrast(colours["text"], colours[fill]), 1)
        for scheme, colours in canvas.SCHEMES.items()
        for fill in ("ground", "good", "fair", "bad", "none")
        if contrast(colours["text"], colours[fill]) < 4.5
    }
    assert weak == {}


@pytest.mark.parametrize("name", ["picked/grid-cuda", "cpu/grid-cpu", "picked/grid-layer-cuda"])
def test_a_scale_reaches_every_stored_value(name: str) -> None:
    """A value beyond the scale would have the colour of the scale's end."""
    report = charts.stored(name)
    for steps in {result.size.steps for result in report.results}:
        maps = grids.heat_maps(report, steps)
        scale = grids.scale_of(maps)
        values = [math.log2(value) for heat_map in maps.values() for value in heat_map.values()]
        assert values
        assert all(0 <= scale(value) <= 1 for value in values)


def test_the_site_and_a_release_s_report_have_the_pictures_colours() -> None:
    wanted = {
        name: tuple(canvas.SCHEMES[scheme][state] for scheme in ("light", "dark"))
        for name, state in (("done", "good"), ("partial", "fair"), ("failed", "bad"))
    }
    (report,) = (REPO / "torchship" / "release").rglob("report.html.j2")
    site = (REPO / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
    for name, (light, dark) in wanted.items():
        assert f"--{name}: light-dark({light}, {dark})" in report.read_text(encoding="utf-8")
        assert re.findall(rf"--{name}: (#\w+)", site) == [light, dark]
