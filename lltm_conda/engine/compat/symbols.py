"""Which torch minors have a symbol, for symbols that some have and others have not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from .layouts import LAYOUTS

FILE = Path(__file__).with_name("symbols.json")


def minors_with(names: Iterable[str]) -> frozenset[tuple[int, int]]:
    """The measured minors that have all of these symbols; a symbol that is not listed tells
    nothing."""
    told = [_ranges()[name] for name in names if name in _ranges()]
    return frozenset(m for m in LAYOUTS if all(first <= m <= last for first, last in told))


@cache
def _ranges() -> Mapping[str, tuple[tuple[int, int], tuple[int, int]]]:
    """By symbol, the first and the last minor that has it."""
    rows: list[tuple[int, int, list[str]]] = []
    with suppress(OSError, ValueError, KeyError):
        rows = json.loads(FILE.read_text("utf-8"))["ranges"]
    return {name: ((2, first), (2, last)) for first, last, names in rows for name in names}
