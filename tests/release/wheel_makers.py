"""Makes small wheels and source distributions of lltm's shape."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from torchship.release.wheels import Wheel

METADATA = """\
Metadata-Version: 2.4
Name: lltm
Version: {}
Requires-Python: >=3.10
Description-Content-Type: text/markdown

Version: no
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {}\n"
EPOCH = 1_700_000_000
TAG = "py3-none-linux_x86_64"


def make_wheel(
    folder: Path,
    binaries: Mapping[str, bytes],
    *,
    version: str = "0.1.0",
    tag: str = TAG,
    sources: Mapping[str, bytes] | None = None,
) -> Path:
    """A wheel with these shared objects in lltm_conda/lib."""
    files = {"lltm_conda/__init__.py": b"", **(sources or {})}
    files.update({f"lltm_conda/lib/{name}": data for name, data in binaries.items()})
    info = {"METADATA": METADATA.format(version).encode(), "WHEEL": WHEEL.format(tag).encode()}
    folder.mkdir(parents=True, exist_ok=True)
    return Wheel("lltm", version, tag, files, info).write(folder, epoch=EPOCH)


def make_sdist(path: Path, files: Mapping[str, bytes] | None = None) -> Path:
    """The source distribution of which `make_wheel` makes wheels, with these files besides."""
    contents = {
        "PKG-INFO": METADATA.format("0.1.0").encode(),
        "pyproject.toml": b"",
        "lltm_conda/__init__.py": b"",
        **(files or {}),
    }
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=EPOCH) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, data in contents.items():
            member = tarfile.TarInfo(f"lltm-0.1.0/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
