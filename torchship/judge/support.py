"""The support facts: the variants that exist, and which torch and Python they serve.

The file `support.json` beside the project's Python files holds them;
`scripts/build_all.sh generate` generates `support.json` from build_matrix.yaml.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .project import Record
from .reading.layouts import LAYOUTS
from .records import NOTHING, parse_minor
from .text import read_json

FIRST = "linux-x86_64"


class Support(Record):
    """The variants that the project builds (by default, none) and the versions that they serve."""

    variants: tuple[str, ...] = ()  #: their names, for Linux on x86-64
    torch_min: tuple[int, int] = min(LAYOUTS)  #: the oldest torch that is served
    torch_max: tuple[int, int] = max(LAYOUTS)  #: the newest torch that was tested
    python_min: tuple[int, int] = (3, 10)  #: the oldest Python that is served
    channel: str | None = None  #: the conda channel that holds the packages
    index: str | None = None  #: the pip index that holds the packages
    others: Mapping[str, tuple[str, ...]] = NOTHING  #: variants of `linux-aarch64` and the like

    @property
    def platforms(self) -> tuple[str, ...]:
        return (FIRST, *self.others)

    def glues(self, platform: str = FIRST) -> frozenset[str]:
        """The names of the glues in the variants of a platform."""
        names = self.variants if platform == FIRST else self.others.get(platform, ())
        return frozenset(name.rpartition("-")[0] for name in names)


@cache
def load(folder: Path) -> Support:
    """The facts of the folder's `support.json`; the defaults if the file cannot be read."""
    try:
        data = read_json(folder / "support.json")
        minors = ("torch_min", "torch_max", "python_min")
        facts: dict[str, Any] = {key: parse_minor(data[key]) for key in minors}
        facts |= {key: data.get(key) for key in ("channel", "index")}
        facts["others"] = {k: tuple(map(str, v)) for k, v in data.get("others", {}).items()}
        return Support(tuple(map(str, data["variants"])), **facts)
    except (KeyError, TypeError, AttributeError):
        return Support()
