"""Hostile shared objects: mutations of real ones, and tables made to hang or bloat a reader."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import elf_structures as elf
from shared_objects import GLUE_RECORD, shared_object

from torchship.judge import budget
from torchship.judge.reading import layouts

#: What a file of 1 MB costs at most to read, and what any file may cost: the budget of a run, and
#: what is under way when it ends.
SECONDS = 1.0
MEGABYTES = 100.0
SECONDS_ANY_SIZE = budget.SECONDS + 1.5
MEGABYTES_ANY_SIZE = 2.0 * budget.MEGABYTES
MEGABYTE = 1 << 20
HUGE = 6 << 30


class Image:
    """An ELF file made by hand: one segment holds it all, so addresses are offsets."""

    def __init__(self) -> None:
        self.data = bytearray(64 + 2 * 56)
        self.dynamic: list[tuple[int, int]] = []
        self.sections: list[tuple[str, int, int, int]] = []

    def add(self, data: bytes) -> int:
        """Append a table; returns its offset."""
        self.data += bytes(-len(self.data) % 16)
        self.data += data
        return len(self.data) - len(data)

    def strings(self, data: bytes, size: int | None = None) -> int:
        """Append the string table."""
        at = self.add(data)
        length = len(data) if size is None else size
        self.dynamic += [(elf.STRING_TABLE, at), (elf.STRING_TABLE_SIZE, length)]
        return at

    def symbols(self, names: list[int], *, section: int = 0) -> None:
        """Append symbols with these offsets into the string table; undefined by default."""
        table = b"".join(elf.Symbol(name, section=section).pack() for name in names)
        at = self.add(table)
        self.dynamic.append((elf.SYMBOL_TABLE, at))
        self.sections.append((".dynsym", 11, at, len(table)))

    def section(self, name: str, data: bytes) -> None:
        self.sections.append((name, 1, self.add(data), len(data)))

    def write(self, path: Path, size: int = 0) -> Path:
        """Write the file, with a hole at its end up to `size`."""
        dynamic = self.add(b"".join(struct.pack("<QQ", *entry) for entry in self.dynamic))
        names = b"\0" + b"\0".join(name.encode() for name, *_ in self.sections) + b"\0.shstrtab\0"
        self.sections.append((".shstrtab", 3, self.add(names), len(names)))
        headers = b""
        for name, kind, at, length in self.sections:
            label = names.index(b"\0" + name.encode() + b"\0") + 1
            header = elf.SectionHeader(
                name=label, kind=kind, flags=0, address=at, offset=at, size=length
            )
            headers += header.pack()
        place = self.add(headers)
        total = max(size, len(self.data))
        loaded = elf.Segment(
            kind=1,
            flags=5,
            offset=0,
            address=0,
            physical_address=0,
            file_size=total,
            memory_size=total,
            alignment=4096,
        )
        dynamic_segment = elf.Segment(
            kind=2,
            flags=6,
            offset=dynamic,
            address=dynamic,
            physical_address=0,
            file_size=len(self.dynamic) * 16,
            memory_size=0,
            alignment=8,
        )
        self.data[64:176] = loaded.pack() + dynamic_segment.pack()
        count = len(self.sections)
        self.data[:64] = elf.FileHeader(
            section_headers=place, section_count=count, names_section=count - 1
        ).pack()
        path.write_bytes(self.data)
        if size:
            os.truncate(path, size)
        return path


def one_symbol(name: bytes) -> Image:
    image = Image()
    image.strings(b"\0" + name + b"\0")
    image.symbols([1])
    return image


def shared_symbols(unit: bytes, count: int, start: bytes = b"") -> Image:
    """Symbols that all lie in one string: each is a tail of the one before."""
    image = Image()
    name = (start + unit * (MEGABYTE // 2))[: MEGABYTE // 2]
    image.strings(b"\0" + name + b"\0")
    step = max(1, len(name) // count)
    image.symbols([1 + index * step for index in range(count)])
    return image


def many_symbols(name: bytes, count: int, *, section: int = 0) -> Image:
    image = Image()
    image.strings(b"\0" + (name + b"\0") * count)
    image.symbols([1 + index * (len(name) + 1) for index in range(count)], section=section)
    return image


def overlapping_needs(count: int, length: int) -> Image:
    image = Image()
    image.strings(b"\0" + b"x" * length + b"\0")
    image.dynamic += [(elf.NEEDED, 1 + index % length) for index in range(count)]
    return image


def many_places(needs: int, folders: int) -> Image:
    """Needed libraries that would be looked for in many folders."""
    image = Image()
    names = b"".join(b"%04x\0" % number for number in range(needs))
    runpath = b":".join(b"/%x" % number for number in range(folders))
    image.strings(b"\0" + names + runpath + b"\0")
    image.dynamic += [(elf.NEEDED, 1 + 5 * number) for number in range(needs)]
    image.dynamic.append((elf.RUNPATH, 1 + len(names)))
    return image


def overlapping_versions(count: int, length: int, step: int = 16, number: int = 1 << 32) -> Image:
    image = Image()
    image.strings(b"\0" + b"GLIBC_2." + b"1." * (length // 2) + b"\0")
    need = elf.VersionNeed(version=1, entries=0xFFFF, file=1, first=16, next=16)
    versions = b"".join(
        elf.NeededVersion(hash=0, flags=0, number=0, name=1 + index % length, next=step).pack()
        for index in range(count)
    )
    at = image.add(need.pack() + versions)
    image.dynamic += [(elf.VERSION_NEEDS, at), (elf.VERSION_NEEDS_COUNT, number)]
    return image


def endless_definitions(following: int) -> Image:
    image = Image()
    image.strings(b"\0" + b"y" * 16000 + b"\0")
    definition = elf.VersionDefinition(
        version=1,
        flags=0,
        number=0,
        entries=1,
        hash=0,
        first=20,
        next=following,
        name=1,
        next_name=0,
    )
    at = image.add(definition.pack() * 20_000)
    image.dynamic += [
        (elf.VERSION_DEFINITIONS, at),
        (elf.VERSION_DEFINITIONS_COUNT, 1 << 32),
    ]
    return image


def hash_table(buckets: int, chain: bytes) -> Image:
    image = Image()
    image.strings(b"\0aoti_torch_x\0")
    symbol = elf.Symbol(name=1, section=1)
    image.dynamic.append((elf.SYMBOL_TABLE, image.add(symbol.pack() * 40)))
    header = elf.GnuHashHeader(
        buckets=buckets, first_symbol=1, bloom_size=1, bloom_shift=0, bloom=(1 << 64) - 1
    )
    table = header.pack() + struct.pack("<I", 1) + chain
    image.dynamic.append((elf.GNU_HASH_TABLE, image.add(table)))
    return image


def symbol_count(count: int) -> Image:
    image = Image()
    image.strings(b"\0x\0")
    symbols = image.add(bytes(24))
    table = image.add(struct.pack("<II", 1, count))
    image.dynamic += [(elf.SYMBOL_TABLE, symbols), (elf.HASH_TABLE, table)]
    return image


def in_section(name: str, data: bytes) -> Image:
    image = Image()
    image.strings(b"\0")
    image.section(name, data)
    return image


def record_of(**fields: object) -> Image:
    return in_section(".torch_extension.record", json.dumps({**GLUE_RECORD, **fields}).encode())


def many_sections(length: int) -> Image:
    image = Image()
    image.strings(b"\0")
    image.sections += [("n" * length, 1, 0, 1 << 40)] * 4000
    return image


CONTAINER = elf.FatbinHeader(size=0).pack()
_ENTRY = elf.FatbinEntry(header_size=48, size=16, architecture=90).pack()

#: Files of at most 1 MB.
SMALL: dict[str, Callable[[], Image]] = {
    "symbol _ZTTT...": lambda: one_symbol(b"_Z" + b"T" * 15_000),
    "symbol _ZTITI...": lambda: one_symbol(b"_Z" + b"TI" * 30_000),
    "symbol _ZTh1_Th1_...": lambda: one_symbol(b"_Z" + b"Th1_" * 15_000),
    "symbols that share one string": lambda: shared_symbols(b"x", 20_000),
    "torch symbols that share one string": lambda: shared_symbols(b"_ZN2at", 20_000),
    "a symbol without an end": lambda: one_symbol(b"_ZN2at" + b"x" * 600_000),
    "numbers in torch symbols": lambda: many_symbols(b"_ZN2at" + b"1a" * 500 + b"Ss", 900),
    "literals in torch symbols": lambda: many_symbols(b"_ZN2at" + b"Lj1" * 300 + b"aSs", 900),
    "20,000 torch symbols": lambda: many_symbols(b"_ZN2at6Tensor", 20_000),
    "20,000 modules": lambda: many_symbols(b"PyInit_abcdefghij", 20_000),
    "needs that share one string": lambda: overlapping_needs(4096, 32_000),
    "1,000 needs that share one string": lambda: overlapping_needs(1000, 16_000),
    "1,000 needs": lambda: overlapping_needs(1000, 200),
    "versions that share one string": lambda: overlapping_versions(10_000, 16_000),
    "4,000 versions": lambda: overlapping_versions(4000, 40),
    "versions in a circle": lambda: overlapping_versions(10, 40, step=0, number=1 << 32),
    "version definitions over each other": lambda: endless_definitions(1),
    "20,000 version definitions": lambda: endless_definitions(28),
    "2^32 hash buckets": lambda: hash_table(0xFFFFFFFF, bytes(4)),
    "a hash chain without an end": lambda: hash_table(1, bytes(900_000)),
    "2^32 symbols": lambda: symbol_count(0xFFFFFFFF),
    "4,000 sections": lambda: many_sections(100),
    "a record with a name of 5,000 digits": lambda: record_of(name="stable2" + "9" * 5000),
    "a record nested 600 deep": lambda: record_of(cxx11_abi=json.loads("[" * 600 + "]" * 600)),
    "a record nested 30,000 deep": lambda: in_section(".torch_extension.record", b"[" * 30_000),
    "a record of small objects": lambda: in_section(
        ".torch_extension.record", b"[" + b"{}," * 20_000
    ),
    "a record of 900 KB": lambda: in_section(".torch_extension.record", b"[" + b"{}," * 300_000),
    "GPU code: padding": lambda: in_section(".nv_fatbin", bytes(1_000_000)),
    "GPU code: empty containers": lambda: in_section(".nv_fatbin", CONTAINER * 60_000),
    "GPU code: small entries": lambda: in_section(
        ".nv_fatbin", elf.FatbinHeader(size=900_000).pack() + (_ENTRY + bytes(16)) * 14_063
    ),
}


def _huge(change: Callable[[Image], None]) -> Callable[[], Image]:
    def make() -> Image:
        image = Image()
        change(image)
        return image

    return make


def _huge_strings(image: Image, size: int) -> None:
    image.strings(b"\0x\0", size)
    image.symbols([1] * 1000)


def _huge_symbols(image: Image) -> None:
    image.strings(b"\0" + b"_ZN2at6Tensor3addEv\0")
    image.dynamic.append((elf.SYMBOL_TABLE, MEGABYTE))
    image.sections.append((".dynsym", 11, MEGABYTE, 199_000 * 24))


def _huge_section(image: Image, name: str) -> None:
    image.strings(b"\0")
    image.sections.append((name, 1, 4096, HUGE - 8192))


#: Files of 6 GB, with holes.
def torch_symbols(count: int) -> Image:
    """Mangled names of 300 bytes, which are read one by one."""
    return many_symbols(b"_ZN2at" + b"1a" * 150 + b"Ss", count)


LARGE: dict[str, Callable[[], Image]] = {
    "a string table of 5 GB": _huge(lambda image: _huge_strings(image, 5 << 30)),
    "a string table of 60 MB": _huge(lambda image: _huge_strings(image, 60 << 20)),
    "199,000 symbols": _huge(_huge_symbols),
    "GPU code of 6 GB": _huge(lambda image: _huge_section(image, ".nv_fatbin")),
    "a record of 6 GB": _huge(lambda image: _huge_section(image, ".torch_extension.record")),
    "10 MB of torch symbols": lambda: torch_symbols(19_000),
}


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A truncation, flipped bits, or plausible and absurd numbers where headers lie."""
    out = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(out[: rng.randrange(len(out))])
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(out) - 8)
        if kind == 1:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            at = rng.randrange(0, 64 + 56 * 9)  # the ELF header and the program headers
            struct.pack_into("<I", out, at, rng.choice((0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)))
        elif kind == 3:
            at = rng.randrange(len(out) // 8) * 8
            value = rng.choice((0, 1, len(out) - 1, len(out), 1 << 32, 1 << 63, (1 << 64) - 1))
            struct.pack_into("<Q", out, min(at, len(out) - 8), value)
        else:
            size = rng.randrange(1, 64)
            out[at : at + size] = rng.randbytes(len(out[at : at + size]))
    return bytes(out)


def real_objects(folder: Path) -> list[bytes]:
    """Objects with our sections, with versions, and with a hand-made GPU code section."""
    entry = elf.FatbinEntry(
        header_size=64, size=128, architecture=90, version=0x101, minor=8, major=1, flags=0x11
    )
    body = entry.pack() + bytes(128)
    (folder / "fatbin.bin").write_bytes(elf.FatbinHeader(size=len(body)).pack() + body)
    gpu = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{folder / "fatbin.bin"}\\"\\n");'
    (folder / "gpu.c").write_text(gpu)
    first = shared_object(
        folder / "a.so",
        record=GLUE_RECORD,
        layout=layouts.LAYOUTS[(2, 9)],
        undefined=["aoti_torch_get_dim", "_ZN2at6Tensor3addEv", "strlen"],
        defined=["tiny_build_record", "PyInit_sample"],
        flags=["-Wl,--hash-style=both", str(folder / "gpu.c")],
    )
    second = shared_object(
        folder / "b.so",
        defined=[f"f{index}" for index in range(40)],
        versions="GLIBCXX_3.4.30 { global: f*; };",
        flags=["-Wl,--hash-style=sysv"],
    )
    return [first.read_bytes(), second.read_bytes()]


def structured(folder: Path) -> Iterator[tuple[str, Path, float, float]]:
    """Every made file: what it is, where it lies, and what it may take, in seconds and MB."""
    large = SECONDS_ANY_SIZE, MEGABYTES_ANY_SIZE
    for files, size, limits in ((SMALL, 0, (SECONDS, MEGABYTES)), (LARGE, HUGE, large)):
        for name, make in files.items():
            path = make().write(folder / "made.so", size)
            if size == 0 and path.stat().st_size > MEGABYTE:
                raise AssertionError(f"{name}: {path.stat().st_size} bytes")
            yield name, path, *limits
