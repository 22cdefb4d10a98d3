"""Which torch minors have a symbol, for symbols that some have and others have not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from .layouts import LAYOUTS

FILE = Path(__file__).with_name("symbols.json")


def minors_with(names: Iterable[str]) -> frozenset[tuple[int, int]]:
    """The measured minors that have all of these symbols; a symbol that is not listed tells
    nothing."""
    ranges, fits = _ranges(), frozenset(LAYOUTS)
    for name in names:
        first, last = ranges.get(name, (min(LAYOUTS), max(LAYOUTS)))
        fits = frozenset(minor for minor in fits if first <= minor <= last)
    return fits


@cache
def _ranges() -> Mapping[str, tuple[tuple[int, int], tuple[int, int]]]:
    """By symbol, the first and the last minor that has it."""
    try:
        data = json.loads(FILE.read_text("utf-8"))["ranges"]
    except (OSError, ValueError, KeyError):
        return {}
    return {name: ((2, first), (2, last)) for first, last, names in data for name in names}
