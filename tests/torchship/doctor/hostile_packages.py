"""Hostile packages, wheels and environments: what lies around a shared object, made to hang or
to bloat the checker."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import elf_structures as elf
from hostile_files import Image
from shared_objects import shared_object

SYMBOL = "_ZN2at6Tensor3addEv"
FOR_THIS_TORCH = "Requires-Dist: torch==2.9.1"


def needing(libraries: list[str], names: list[bytes]) -> Image:
    """An object that needs these libraries, and has these undefined symbols."""
    image = Image()
    strings = bytearray(b"\0")
    offsets = []
    for name in [*(library.encode() for library in libraries), *names]:
        offsets.append(len(strings))
        strings += name + b"\0"
    image.strings(bytes(strings))
    image.dynamic += [(elf.NEEDED, offset) for offset in offsets[: len(libraries)]]
    image.symbols(offsets[len(libraries) :])
    return image


def distribution(site: Path, name: str, *files: Path, requires: str = "") -> Path:
    """Metadata in a site folder for a distribution of these files; returns its folder."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n{requires}\n\n")
    lines = [f"{file.relative_to(site).as_posix()},sha256=x,1\n" for file in files]
    (info / "RECORD").write_text("".join(lines))
    return info


def copies(original: Path, folder: Path, count: int) -> list[Path]:
    """Links to a file, which the checker reads as files of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"lib{number}.so" for number in range(count)]
    for path in paths:
        os.link(original, path)
    return paths


# Libraries and symbols.


def symbols_times_libraries(folder: Path, *, distinct: bool) -> Path:
    """400 DT_NEEDED and 30,000 symbols, of one name or of as many."""
    libraries = copies(shared_object(folder / "libone.so"), folder / "libraries", 400)
    names = [b"f%d" % number if distinct else b"f" for number in range(30_000)]
    return needing([str(path) for path in libraries], names).write(folder / "x.so")


def package_of_libraries(folder: Path, shape: str, count: int) -> Path:
    """Libraries of one package: each needs the next one ("chain", "ring"), or all ("clique")."""
    site = folder / "site-packages"
    (site / "theirs").mkdir(parents=True)
    paths = [site / "theirs" / f"lib{number}.so" for number in range(count)]
    for number, path in enumerate(paths):
        followers = [paths[(number + 1) % count]] if shape != "clique" else paths
        if shape == "chain" and path == paths[-1]:
            followers = []
        names = ["libtorch_cpu.so", *(follower.name for follower in followers)]
        needing(names, [SYMBOL.encode()]).write(path)
    distribution(site, "theirs", *paths, requires=FOR_THIS_TORCH)
    return paths[0]


def costly_siblings(folder: Path, count: int) -> Path:
    """An object that needs libraries of its package, each with 1 MB of empty GPU code."""
    site = folder / "site-packages"
    library = needing(["libtorch_cpu.so"], [SYMBOL.encode()])
    library.section(".nv_fatbin", elf.FatbinHeader(size=0).pack() * 60_000)
    libraries = copies(library.write(folder / "one.so"), site / "theirs", count)
    needed = ["libtorch_cpu.so", *(path.name for path in libraries)]
    path = needing(needed, [SYMBOL.encode()]).write(site / "theirs" / "x.so")
    distribution(site, "theirs", path, *libraries, requires=FOR_THIS_TORCH)
    return path


# Metadata.

HOSTILE_METADATA = {
    "spaces in a requirement": "Requires-Dist: torch" + " " * 200_000 + ";extr",
    "a long requirement": "Requires-Dist: torch" + "a b" * 70_000,
    "a pin of a thousand clauses": "Requires-Dist: torch " + ">=1,!=2.1," * 20_000,
    "many requirements": "Requires-Dist: torch>=2.0,<9\n" * 7000,
    "signs without versions": "Requires-Dist: torch " + ">" * 200_000,
    "digits": "Requires-Dist: torch ==" + "1." * 100_000,
}
#: Each lists the judged file first: who is asked for the owner reads the rest, too.
_OWN_LINE = "theirs/_C.so,sha256=x,1\n"
_HOSTILE_LINES = {
    "one line of suffixes": ".so" * 770_000,
    "one line of versions": "x.so" + ".1" * 1_150_000 + "x,",
    "a quoted line": '"' + "x" * 2_300_000,
    "short lines": "x.so,\n" * 380_000,
    "commas": "," * 2_300_000,
    "as many objects": "".join(f"theirs/lib{number}.so,\n" for number in range(110_000)),
    "as many folders": "".join(f"theirs/{number}/x.so,\n" for number in range(110_000)),
}
HOSTILE_RECORDS = {name: _OWN_LINE + lines for name, lines in _HOSTILE_LINES.items()}
METADATA_PLACES = (
    "theirs-1.0.dist-info/RECORD",
    "theirs-1.0.dist-info/METADATA",
    "theirs-1.0.dist-info/INSTALLER",
    "theirs-1.0.dist-info/direct_url.json",
    "theirs.egg-link",
    "theirs/version.py",
    "conda-meta/theirs.json",
    "conda-meta/history",
)
KINDS_OF_PLACES = ("fifo", "sparse", "device", "folder", "loop")
_SMALL_VALUES = "[" + "{}," * 2_700_000 + "1]"


def with_metadata(folder: Path, *, requires: str = "", record: str | None = None) -> Path:
    site = folder / "site-packages"
    path: Path = shared_object(site / "theirs" / "_C.so", undefined=[SYMBOL])
    info = distribution(site, "theirs", path, requires=requires)
    if record is not None:
        (info / "RECORD").write_text(record)
    return path


def replace_file(place: Path, kind: str) -> None:
    """Put something that is no bounded regular file at a place."""
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "sparse":
        place.touch()
        os.truncate(place, 64 << 30)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(place)


def with_conda_metadata(folder: Path, count: int) -> Path:
    """Files of conda-meta, of 8 MB each, whose values would take 200 MB of memory."""
    path = with_metadata(folder)
    meta = folder / "site-packages" / "conda-meta"
    meta.mkdir()
    first = meta / "theirs.json"
    first.write_text('{"name": "theirs", "files": ["theirs/_C.so"], "x": ' + _SMALL_VALUES + "}")
    for number in range(1, count):
        os.link(first, meta / f"other{number}.json")
    return path


def with_large_origin(folder: Path) -> Path:
    path = with_metadata(folder)
    origin = folder / "site-packages" / "theirs-1.0.dist-info" / "direct_url.json"
    origin.write_text('{"x": ' + _SMALL_VALUES + "}")
    return path


def with_editables(folder: Path, count: int) -> Path:
    """Distributions that say to be installed from the whole disk."""
    path = with_metadata(folder)
    origin = json.dumps({"dir_info": {"editable": True}, "url": "file:///"})
    for number in range(count):
        info = distribution(folder / "site-packages", f"other{number}")
        (info / "direct_url.json").write_text(origin)
    return path


def with_egg_links(folder: Path, count: int) -> Path:
    """Links to one source folder of 20,000 files, which each match several distributions."""
    path = with_metadata(folder)
    source = folder / "source"
    source.mkdir()
    for number in range(20_000):
        (source / f"file{number}").touch()
    for number in range(count):
        (source / f"e{number}.egg-info").mkdir()
        (folder / "site-packages" / f"e{number}.egg-link").write_text(f"{source}\n")
    return path


def with_spellings(folder: Path) -> Path:
    """A RECORD of 800 kB that names one folder of 20,000 files in 400 ways."""
    ways = ("theirs/" + "../theirs/" * depth for depth in range(400))
    record = _OWN_LINE + "".join(f"{way}x.so,\n" for way in ways)
    path = with_metadata(folder, record=record)
    for number in range(20_000):
        (path.parent / f"file{number}").touch()
    return path


# Wheels.


def plain_wheel() -> dict[str, bytes]:
    return {
        "theirs-1.0.dist-info/METADATA": b"Name: theirs\nVersion: 1.0\n\n",
        "theirs-1.0.dist-info/RECORD": b"theirs/_C.so,sha256=x,1\n",
    }


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return content.getvalue()


def encrypted(content: bytes) -> bytes:
    """Sets the flag of an encrypted member in every header."""
    changed = bytearray(content)
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = changed.find(signature)
        while at >= 0:
            changed[at + flags] |= 1
            at = changed.find(signature, at + 4)
    return bytes(changed)


def with_method(content: bytes, method: int) -> bytes:
    changed = bytearray(content)
    for signature, place in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        at = changed.find(signature)
        while at >= 0:
            struct.pack_into("<H", changed, at + place, method)
            at = changed.find(signature, at + 4)
    return bytes(changed)


def twice(name: str) -> bytes:
    other = name[:-1] + "_"
    content = zipped({name: b"", other: b""}, zipfile.ZIP_STORED)
    return content.replace(other.encode(), name.encode())


def corrupt(content: bytes) -> bytes:
    at = content.find(b"theirs/_C.so") + 14
    return content[:at] + bytes(30) + content[at + 30 :]


def many_members(count: int) -> bytes:
    """A zip file whose list has one member `count` times."""
    # In both headers, the version is 20, and the name has one byte.
    member = struct.pack(
        "<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, *[0] * 6
    )
    first = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    listed = (member + b"a") * count
    at = len(first) + len(listed)
    end64 = struct.pack(
        "<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(listed), len(first)
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return first + listed + end64 + locator + end


HOSTILE_WHEELS: dict[str, Callable[[], bytes]] = {
    "outside": lambda: zipped({"../x.so": b""}),
    "absolute": lambda: zipped({"/x.so": b""}),
    "a name beyond the limits": lambda: zipped({"d/" * 3000 + "x.so": b""}),
    "a name of 300 bytes": lambda: zipped({"x" * 300 + ".so": b""}),
    "a file as a folder": lambda: zipped({"x.so": b"", "x.so/y.so": b""}),
    "one name twice": lambda: twice("x.so"),
    "encrypted": lambda: encrypted(zipped({"x.so": b"abc"})),
    "an unknown method": lambda: with_method(zipped({"x.so": b"abc"}), 99),
    "no deflate data": lambda: corrupt(zipped({"theirs/_C.so": bytes(1000)})),
    "lzma that is none": lambda: with_method(zipped({"x.so": b"abc" * 9}, 0), 14),
    "bzip2 that is none": lambda: with_method(zipped({"x.so": b"abc" * 9}, 0), 12),
    "cut": lambda: zipped({"theirs/_C.so": bytes(1000)})[:-30],
    "a list of 500,000 members": lambda: many_members(500_000),
    "empty": lambda: b"",
}


def write_wheel(folder: Path, make: Callable[[], bytes]) -> Path:
    wheel = folder / "theirs-1.0-py3-none-any.whl"
    wheel.write_bytes(make())
    return wheel
