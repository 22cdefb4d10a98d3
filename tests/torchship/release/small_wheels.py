"""Makes small wheels and source distributions of a client's shape."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from small_client import PROJECT

from torchship.release.steps.pack.wheels import Wheel

METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Requires-Python: >=3.10
Description-Content-Type: text/markdown

Version: no
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {}\n"
EPOCH = 1_700_000_000
TAG = "py3-none-linux_x86_64"
VERSION = PROJECT.version


@dataclass(frozen=True)
class Shape:
    """Whose distributions they are; `metadata` has places for the name and the version."""

    distribution: str
    package: str
    metadata: str = METADATA

    @property
    def name(self) -> str:
        """As it stands in the names of files."""
        return self.distribution.replace("-", "_")

    def metadata_of(self, version: str) -> bytes:
        return self.metadata.format(name=self.distribution, version=version).encode()


SMALL = Shape(PROJECT.distribution, PROJECT.package)


def make_wheel(
    folder: Path,
    binaries: Mapping[str, bytes],
    *,
    version: str = VERSION,
    tag: str = TAG,
    sources: Mapping[str, bytes] | None = None,
    shape: Shape = SMALL,
) -> Path:
    """A wheel with these shared objects in PACKAGE/lib."""
    files = {f"{shape.package}/__init__.py": b"", **(sources or {})}
    files.update({f"{shape.package}/lib/{name}": data for name, data in binaries.items()})
    info = {"METADATA": shape.metadata_of(version), "WHEEL": WHEEL.format(tag).encode()}
    folder.mkdir(parents=True, exist_ok=True)
    return Wheel(shape.name, version, tag, files, info).write(folder, epoch=EPOCH)


def make_sdist(
    path: Path, files: Mapping[str, bytes] | None = None, *, shape: Shape = SMALL
) -> Path:
    """The source distribution of which `make_wheel` makes wheels, with these files besides."""
    contents = {
        "PKG-INFO": shape.metadata_of(VERSION),
        "pyproject.toml": b"",
        f"{shape.package}/__init__.py": b"",
        **(files or {}),
    }
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=EPOCH) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, data in contents.items():
            member = tarfile.TarInfo(f"{shape.name}-{VERSION}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
