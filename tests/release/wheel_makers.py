"""Makes small wheels and source distributions of lltm's shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import small_wheels
from small_wheels import EPOCH, TAG, Shape

__all__ = ["EPOCH", "METADATA", "TAG", "make_sdist", "make_wheel"]

METADATA = small_wheels.METADATA.format(name="lltm", version="{}")


def shape() -> Shape:
    return Shape("lltm", "lltm_conda", METADATA.replace("{}", "{version}"))


def make_wheel(
    folder: Path,
    binaries: Mapping[str, bytes],
    *,
    version: str = small_wheels.VERSION,
    tag: str = TAG,
    sources: Mapping[str, bytes] | None = None,
) -> Path:
    """A wheel with these shared objects in lltm_conda/lib."""
    properties = {"version": version, "tag": tag}
    return small_wheels.make_wheel(folder, binaries, sources=sources, shape=shape(), **properties)


def make_sdist(path: Path, files: Mapping[str, bytes] | None = None) -> Path:
    """The source distribution of which `make_wheel` makes wheels, with these files besides."""
    return small_wheels.make_sdist(path, files, shape=shape())
