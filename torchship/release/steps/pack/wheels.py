"""Reads and writes wheels; equal content, dates and versions of zlib give equal bytes."""

import base64
import csv
import hashlib
import json
import re
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from ....builder.torch_range import torch_requirement
from ....judge.reading.binary import read_binary
from ... import ReleaseError

# What a file that is no wheel, or a damaged one, raises while it is read.
UNREADABLE = (
    OSError,
    EOFError,
    BadZipFile,
    RuntimeError,
    LookupError,
    ValueError,
    csv.Error,
    struct.error,
    zlib.error,
)


class Wheel(NamedTuple):
    """A wheel in memory.

    `info` holds `.dist-info` without RECORD, and `files` all other files.
    """

    name: str
    version: str
    tag: str
    files: dict[str, bytes]
    info: dict[str, bytes]

    @property
    def binaries(self) -> dict[str, bytes]:
        return {name: data for name, data in self.files.items() if ".so" in Path(name).name}

    @property
    def common_info(self) -> dict[str, bytes]:
        """`info` without what differs between variants: local version, tag, and range of torch."""
        info = self.requiring("torch").renamed(local=None).info
        return {name: data for name, data in info.items() if name != "WHEEL"}

    def requiring(self, torch: str) -> "Wheel":
        """A copy that requires this range of torch in place of its own."""
        head, blank, body = self.info["METADATA"].partition(b"\n\n")
        line = f"Requires-Dist: {torch}".encode()
        head = re.sub(rb"(?m)^Requires-Dist: torch(?![\w.\[-])[^;\n]*$", line, head)
        return self._replace(info={**self.info, "METADATA": head + blank + body})

    def renamed(self, *, local: str | None, tag: str | None = None) -> "Wheel":
        """A copy with the local version `local` (None for none), and with `tag` if it is given."""
        public = Version(self.version).public
        version = f"{public}+{local}" if local else public
        head, blank, body = self.info["METADATA"].partition(b"\n\n")
        old, new = (f"\nVersion: {value}".encode() for value in (self.version, version))
        metadata = head.replace(old, new, 1) + blank + body
        tag = tag or self.tag
        old_lines = self.info["WHEEL"].decode().splitlines()
        lines = [line for line in old_lines if line and not line.startswith("Tag: ")]
        python, abi, platforms = tag.split("-")
        lines += [f"Tag: {python}-{abi}-{platform}" for platform in platforms.split(".")]
        info = {"METADATA": metadata, "WHEEL": "".join(f"{line}\n" for line in lines).encode()}
        return self._replace(version=version, tag=tag, info={**self.info, **info})

    def write(self, folder: Path, *, epoch: int) -> Path:
        """Writes the wheel into a folder, with sorted entries and a new RECORD; returns its path.

        `epoch` is the date of its entries, in seconds since 1970.
        """
        inside = f"{self.name}-{self.version}.dist-info"
        entries = self.files | {f"{inside}/{name}": data for name, data in self.info.items()}
        lines = [f"{n},sha256={_hash(data)},{len(data)}\n" for n, data in sorted(entries.items())]
        entries[f"{inside}/RECORD"] = "".join([*lines, f"{inside}/RECORD,,\n"]).encode()
        path = folder / f"{self.name}-{self.version}-{self.tag}.whl"
        with path.open("wb") as file:
            write_zip(file, entries, epoch=epoch)
        return path


def write_zip(file: IO[bytes], entries: Mapping[str, bytes], *, epoch: int) -> None:
    """Writes a zip archive with sorted entries, whose date is `epoch` and whose modes are fixed.

    What `file` holds already stays before the archive.
    """
    date = time.gmtime(max(epoch, 315532800))[:6]  # zip files have no dates before 1980
    with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for entry in sorted(entries, key=lambda n: (".dist-info/" in n, n)):
            item = ZipInfo(entry, date)
            item.external_attr = (0o755 if entry.endswith(".so") else 0o644) << 16
            archive.writestr(item, entries[entry], ZIP_DEFLATED)


def read_wheel(path: Path) -> Wheel:
    """The wheel at `path`.

    Raises ReleaseError if it is unreadable or does not match its RECORD.
    """
    try:
        parse_wheel_filename(path.name)
        name, version, *tags = path.name.removesuffix(".whl").split("-")
        inside = f"{name}-{version}.dist-info/"
        with ZipFile(path) as archive:
            entries = {item.filename: archive.read(item) for item in archive.infolist()}
            if len(entries) != len(archive.infolist()):
                raise ValueError("it holds two files of one name")
        record = entries.pop(f"{inside}RECORD").decode()
        listed = {name: value for name, value, _ in csv.reader(record.splitlines()) if value}
    except UNREADABLE as error:
        raise ReleaseError(f"{path}: cannot be read as a wheel ({error}); delete it") from error
    entries = {name: data for name, data in entries.items() if not name.endswith("/")}
    hashes = {name: f"sha256={_hash(data)}" for name, data in entries.items()}
    names = {*listed, *hashes}
    if wrong := sorted(name for name in names if listed.get(name) != hashes.get(name)):
        raise ReleaseError(
            f"{path}: {wrong[0]} does not match the wheel's RECORD; "
            "delete the wheel and build it again"
        )
    info = {n.removeprefix(inside): d for n, d in entries.items() if n.startswith(inside)}
    files = {n: d for n, d in entries.items() if not n.startswith(inside)}
    return Wheel(name, version, "-".join(tags), files, info)


def commits(wheel: Wheel) -> list[str]:
    """The commits in the build records of the wheel's binaries, sorted."""
    with TemporaryDirectory() as folder:
        records = []
        for index, data in enumerate(wheel.binaries.values()):
            path = Path(folder, str(index))
            path.write_bytes(data)
            records.append(read_binary(path).record)
    if not records or None in records:
        raise ReleaseError(
            f"{wheel.name} {wheel.version}: has no binaries, or one has no build record; "
            "build it again"
        )
    facts = (json.loads(record.text) for record in records if record)
    return sorted({str(fact.get("git_commit", "unknown")) for fact in facts})


def unpack_binaries(wheel: Wheel, folder: Path) -> list[Path]:
    """Writes the binaries of a wheel into a folder; returns their paths, sorted by name."""
    paths = []
    for name, data in sorted(wheel.binaries.items()):
        path = folder / Path(name).name
        path.write_bytes(data)
        paths.append(path)
    return paths


def join(wheels: Mapping[str, Path], *, local: str | None, platform: str) -> Wheel:
    """One wheel of local version `local` (None for none) with the files of all `wheels`.

    `platform` is that of the binaries, such as `linux-x86_64`. The keys of `wheels` are the
    names of their variants. Raises ReleaseError if there is no wheel, if a file or the metadata
    differ between two wheels, or if a non-binary file is not in all of them.
    """
    files: dict[str, tuple[str, bytes]] = {}
    first: Wheel | None = None
    info: dict[str, bytes] = {}
    for label, path in wheels.items():
        wheel = read_wheel(path)
        if first is None:
            first = wheel
            info = wheel.common_info
        for name, data in wheel.files.items():
            other, other_data = files.setdefault(name, (label, data))
            if other_data != data:
                raise ReleaseError(
                    f"{name} differs between the wheels of {other} and {label}; build both again, "
                    "from one commit and with one compiler"
                )
        if missing := sorted({*first.files} - {*first.binaries} - {*wheel.files}):
            raise ReleaseError(f"the wheel of {label} lacks {missing[0]}; build it again")
        if more := sorted({*wheel.files} - {*wheel.binaries} - {*first.files}):
            raise ReleaseError(
                f"the wheel of {label} has {more[0]}, which the others lack; build it again"
            )
        own_info = wheel.common_info
        for name in sorted({*info, *own_info}):
            if own_info.get(name) != info.get(name):
                raise ReleaseError(
                    f"{name} of the wheel of {label} differs from that of the others; build them "
                    "again, from one commit"
                )
    if first is None:
        raise ReleaseError("no wheel to join: build at least one variant")
    tag = f"py3-none-{platform.replace('-', '_')}"
    joined = first._replace(files={name: data for name, (_, data) in sorted(files.items())})
    glues = [Path(name).stem for name in joined.binaries if Path(name).name.startswith("glue-")]
    whole = joined.requiring(torch_requirement(glues)) if glues else joined
    return whole.renamed(local=local, tag=tag)


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
