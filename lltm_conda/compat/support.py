"""The support facts: which variants exist and which torch versions they were run on.

`support.json` beside this file is generated from build_matrix.yaml
(`scripts/build_all.sh --write-generated`).
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .layouts import LAYOUTS
from .records import parse_minor


class Support(NamedTuple):
    """What the project builds.

    Attributes:
        variants: names of every variant of the matrix.
        torch_min, torch_max: the oldest torch that is served, the newest that was tested.
        python_min: the oldest Python.
        channel: the conda channel, or None where there is none yet.
        index: the pip index of thin wheels, or None.
    """

    variants: tuple[str, ...]
    torch_min: tuple[int, int]
    torch_max: tuple[int, int]
    python_min: tuple[int, int]
    channel: str | None
    index: str | None  # type: ignore[assignment]  # tuple.index is not needed

    def glues(self) -> frozenset[str]:
        """The glue names among the variants."""
        return frozenset(name.rpartition("-")[0] for name in self.variants)


# Without the file nothing is known to exist, so every command is a local build.
_FALLBACK = Support(
    variants=(),
    torch_min=min(LAYOUTS),
    torch_max=max(LAYOUTS),
    python_min=(3, 10),
    channel=None,
    index=None,
)
_FILE = Path(__file__).with_name("support.json")


@cache
def load(path: Path = _FILE) -> Support:
    """The facts of `support.json`, or hardly any where it is missing or cannot be read.

    The file holds an object with `variants` (list of names), `torch_min`, `torch_max`, `python_min`
    ("2.4" and the like), `channel` and `index` (text or null).
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        minors = {key: parse_minor(data[key]) for key in ("torch_min", "torch_max", "python_min")}
        return Support(
            variants=tuple(str(name) for name in data["variants"]),
            torch_min=minors["torch_min"] or _FALLBACK.torch_min,
            torch_max=minors["torch_max"] or _FALLBACK.torch_max,
            python_min=minors["python_min"] or _FALLBACK.python_min,
            channel=data.get("channel"),
            index=data.get("index"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _FALLBACK
