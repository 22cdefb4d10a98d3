"""The support facts: which variants exist and which torch versions they were run on.

`support.json` in the folder of the project's Python files is generated from build_matrix.yaml
(`scripts/build_all.sh --write-generated`).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from .layouts import LAYOUTS
from .records import Record, parse_minor


class Support(Record):
    """What the project builds. By default nothing, so every command is a local build.

    Attributes:
        variants: names of every variant of the matrix.
        torch_min, torch_max: the oldest torch that is served, the newest that was tested.
        python_min: the oldest Python.
        channel: the conda channel, or None where there is none yet.
        index: the pip index that serves the wheels, or None where there is none yet.
    """

    variants: tuple[str, ...] = ()
    torch_min: tuple[int, int] = min(LAYOUTS)
    torch_max: tuple[int, int] = max(LAYOUTS)
    python_min: tuple[int, int] = (3, 10)
    channel: str | None = None
    index: str | None = None

    def glues(self) -> frozenset[str]:
        """The glue names among the variants."""
        return frozenset(name.rpartition("-")[0] for name in self.variants)


@cache
def load(folder: Path) -> Support:
    """The facts of `support.json`; the defaults where it is missing or cannot be read.

    The file holds an object with `variants` (list of names), `torch_min`, `torch_max`, `python_min`
    ("2.4" and the like), `channel` and `index` (text or null).
    """
    try:
        data = json.loads((folder / "support.json").read_text("utf-8"))
        minors = ("torch_min", "torch_max", "python_min")
        facts: dict[str, Any] = {key: parse_minor(data[key]) for key in minors}
        facts |= {key: data.get(key) for key in ("channel", "index")}
        return Support(tuple(map(str, data["variants"])), **facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Support()
