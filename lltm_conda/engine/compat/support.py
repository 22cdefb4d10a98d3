"""The support facts: which variants exist and which torch versions they were run on.

`support.json` in the folder of the project's Python files is generated from build_matrix.yaml
(`scripts/build_all.sh --write-generated`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..project import Record
from .layouts import LAYOUTS
from .records import NOTHING, parse_minor

FIRST = "linux-x86_64"


class Support(Record):
    """What the project builds. By default nothing, so every command is a local build.

    Attributes:
        variants: names of every variant of the matrix.
        others: the variants of each platform other than x86-64, such as `linux-aarch64`.
        torch_min, torch_max: the oldest torch that is served, the newest that was tested.
        channel, index: the conda channel and the pip index with the packages; None if none has.
    """

    variants: tuple[str, ...] = ()
    torch_min: tuple[int, int] = min(LAYOUTS)
    torch_max: tuple[int, int] = max(LAYOUTS)
    python_min: tuple[int, int] = (3, 10)
    channel: str | None = None
    index: str | None = None
    others: Mapping[str, tuple[str, ...]] = NOTHING

    @property
    def platforms(self) -> tuple[str, ...]:
        return (FIRST, *self.others)

    def glues(self, platform: str = FIRST) -> frozenset[str]:
        """The glue names among the variants of a platform."""
        names = self.variants if platform == FIRST else self.others.get(platform, ())
        return frozenset(name.rpartition("-")[0] for name in names)


@cache
def load(folder: Path) -> Support:
    """The facts of `support.json`; the defaults where it is missing or cannot be read."""
    try:
        data = json.loads((folder / "support.json").read_text("utf-8"))
        minors = ("torch_min", "torch_max", "python_min")
        facts: dict[str, Any] = {key: parse_minor(data[key]) for key in minors}
        facts |= {key: data.get(key) for key in ("channel", "index")}
        facts["others"] = {k: tuple(map(str, v)) for k, v in data.get("others", {}).items()}
        return Support(tuple(map(str, data["variants"])), **facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Support()
