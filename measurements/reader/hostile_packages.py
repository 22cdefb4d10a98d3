"""Hostile packages, wheels and environments: what lies around a shared object, made to hang or
to bloat the checker."""

from __future__ import annotations

import io
import json
import os
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shared_objects import fake_torch, shared_object
from small_client import PROJECT

from measurements.reader import elf_structures as elf
from measurements.reader.child import in_child
from measurements.reader.hostile_files import (
    MEGABYTES,
    SECONDS,
    SECONDS_ANY_SIZE,
    Image,
    many_symbols,
)
from torchship.doctor import judge_file
from torchship.doctor.command import main as doctor
from torchship.judge import Runtime, find_torch, probe_runtime

SECONDS_ENVIRONMENT = 20.0
SECONDS_WHEEL = 30.0
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


def with_replaced_file(folder: Path, name: str, kind: str) -> Path:
    path = with_metadata(folder, requires=FOR_THIS_TORCH)
    replace_file(folder / "site-packages" / name, kind)
    return path


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


def zip_bomb(folder: Path) -> Path:
    """3 MB that unpack to 3 GB."""
    wheel = folder / "theirs-1.0-py3-none-any.whl"
    with (
        zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("theirs/_C.so", "w", force_zip64=True) as member,
    ):
        for _ in range(3000):
            member.write(bytes(1 << 20))
    return wheel


def wheel_of_many_symbols(folder: Path) -> Path:
    """300 objects of 20,000 symbols of torch."""
    path = many_symbols(SYMBOL.encode(), 20_000).write(folder / "x.so")
    members = {f"theirs/lib{number}.so": path.read_bytes() for number in range(300)}
    return write_wheel(folder, lambda: zipped(members))


# Environments.


def environment_of(folder: Path, make: Callable[[], Image]) -> Path:
    """A site folder with 200 extensions of one package."""
    site = folder / "site-packages"
    paths = copies(make().write(folder / "x.so"), site / "theirs", 200)
    distribution(site, "theirs", *paths, requires=FOR_THIS_TORCH)
    return site


# The cases.


class Bound(NamedTuple):
    """The most that a case may cost; None for memory of which nothing is promised."""

    seconds: float
    megabytes: float | None


class Case(NamedTuple):
    group: str
    name: str
    bound: Bound
    work: Callable[[], float]  #: gives the processor seconds; for a process of its own


ONE_MEGABYTE = Bound(SECONDS, MEGABYTES)
ANY_SIZE = Bound(SECONDS_ANY_SIZE, MEGABYTES)
WHEEL = Bound(SECONDS_WHEEL, None)
ENVIRONMENT = Bound(SECONDS_ENVIRONMENT, None)


def bound_of(size: int) -> Bound:
    """The bound of a file, or of metadata, of more than 1 MB."""
    return Bound(min(SECONDS_ANY_SIZE, SECONDS * max(1.0, size / 1e6)), MEGABYTES)


class Cases:
    """All cases, which judge for a fake torch 2.9.1 in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = fake_torch(folder / "torch-site", "2.9.1", exports=[SYMBOL])
        self.runtime: Runtime = probe_runtime(find_torch(self.root), gpu=False)
        self._count = 0

    def _next_folder(self) -> Path:
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        return folder

    def _make(self, make: Callable[[Path], Path]) -> Path:
        """The path that `make` returns for a new folder, made by another process."""
        folder = self._next_folder()
        return Path(str(in_child(lambda: str(make(folder)))))

    def _judge(
        self, group: str, name: str, make: Callable[[Path], Path], bound: Bound = ONE_MEGABYTE
    ) -> Case:
        path = self._make(make)

        def work() -> float:
            start = time.process_time()
            judge_file(path, self.runtime)
            return time.process_time() - start

        return Case(group, name, bound, work)

    def _command(self, group: str, name: str, arguments: list[str], bound: Bound) -> Case:
        def work() -> float:
            start = time.process_time()
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                doctor(PROJECT, arguments)
            return time.process_time() - start

        return Case(group, name, bound, work)

    def __iter__(self) -> Iterator[Case]:
        """Each case, whose files are made when it is drawn."""
        yield from self._libraries()
        yield from self._metadata()
        yield from self._places()
        yield from self._wheels()
        yield from self._environments()

    def _libraries(self) -> Iterator[Case]:
        group = "libraries and symbols"
        for distinct in (False, True):
            name = f"400 libraries, 30,000 symbols of {'as many names' if distinct else 'one name'}"
            yield self._judge(
                group,
                name,
                partial(symbols_times_libraries, distinct=distinct),
            )
        for shape in ("chain", "ring", "clique"):
            for count in (16, 20):
                yield self._judge(
                    group,
                    f"a {shape} of {count} libraries",
                    partial(package_of_libraries, shape=shape, count=count),
                )
        for count in (80, 400):
            yield self._judge(
                group,
                f"{count} libraries of 1 MB of GPU code",
                partial(costly_siblings, count=count),
                ANY_SIZE,
            )

    def _metadata(self) -> Iterator[Case]:
        for name, requires in HOSTILE_METADATA.items():
            yield self._judge(
                "METADATA of 200 kB",
                name,
                partial(with_metadata, requires=requires),
            )
        for name, record in HOSTILE_RECORDS.items():
            yield self._judge(
                "RECORD of 2.3 MB",
                name,
                partial(with_metadata, record=record),
                bound_of(len(record)),
            )
        group = "metadata of a whole site folder"
        yield self._judge(group, "direct_url.json of 8 MB", with_large_origin, ANY_SIZE)
        for count in (1, 40):
            yield self._judge(
                group,
                f"conda-meta: {count} of 8 MB",
                partial(with_conda_metadata, count=count),
                ANY_SIZE,
            )
        yield self._judge(
            group, "50 editables of the disk", lambda folder: with_editables(folder, 50), ANY_SIZE
        )
        yield self._judge(group, "one folder under 400 names", with_spellings)
        yield self._judge(
            group, "400 egg-links", lambda folder: with_egg_links(folder, 400), ANY_SIZE
        )

    def _places(self) -> Iterator[Case]:
        for kind in KINDS_OF_PLACES:
            for place in METADATA_PLACES:
                yield self._judge(
                    "no regular file as metadata",
                    f"{kind} as {place}",
                    partial(with_replaced_file, name=place, kind=kind),
                )

    def _wheels(self) -> Iterator[Case]:
        group = "wheels, audited"
        for name, make in HOSTILE_WHEELS.items():
            wheel = self._make(partial(write_wheel, make=make))
            yield self._command(group, name, ["--audit", str(wheel)], WHEEL)
        wheel = self._make(zip_bomb)
        yield self._command(group, "3 MB that unpack to 3 GB", ["--audit", str(wheel)], WHEEL)
        wheel = self._make(wheel_of_many_symbols)
        yield self._command(group, "300 objects of 1 MB", ["--audit", str(wheel)], WHEEL)

    def _environments(self) -> Iterator[Case]:
        originals: dict[str, Callable[[], Image]] = {
            "200 extensions": lambda: needing(["libtorch_cpu.so"], [SYMBOL.encode()] * 100),
            "200 extensions of 20,000 symbols": lambda: many_symbols(SYMBOL.encode(), 20_000),
            "200 extensions of 100 MB": lambda: many_symbols(
                b"_ZN2at" + b"1a" * 150 + b"Ss", 190_000
            ),
        }
        for name, make in originals.items():
            site = self._make(partial(environment_of, make=make))
            arguments = ["--json", "--torch", str(self.root), str(site)]
            yield self._command("environments", name, arguments, ENVIRONMENT)
