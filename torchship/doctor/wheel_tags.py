"""Probe: the tags of the wheel from which a distribution was installed."""

from __future__ import annotations

import re
from pathlib import Path

from ..judge.text import printable, read_regular

_MAX_WHEEL_FILE = 1 << 16
_MAX_TAGS = 100


def wheel_tags(place: Path) -> list[str]:
    """The tags in a metadata folder, such as `cp311-cp311-manylinux_2_28_x86_64`."""
    try:
        content = read_regular(place / "WHEEL", _MAX_WHEEL_FILE).decode("utf-8", "replace")
    except OSError:
        return []
    tags = re.findall(r"^Tag: (\S{1,200})$", content, re.MULTILINE)
    return [printable(tag) for tag in tags[:_MAX_TAGS]]
