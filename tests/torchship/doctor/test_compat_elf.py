"""The ELF reader agrees with binutils on real files."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from shared_objects import shared_object

from torchship.judge.reading.elf import Elf, ElfError


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def nm(path: Path, *flags: str) -> set[str]:
    lines = output("nm", "-D", *flags, str(path)).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


@pytest.fixture(params=["gnu", "sysv", "both"])
def hashed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same object with each kind of symbol hash table."""
    return shared_object(
        tmp_path / "x.so",
        defined=[f"function_{index}" for index in range(50)],
        undefined=["elsewhere_1", "elsewhere_2"],
        flags=[f"-Wl,--hash-style={request.param}"],
    )


def test_lookup_finds_what_is_defined_and_nothing_else(hashed: Path) -> None:
    with Elf(hashed) as elf:
        assert all(elf.defines(f"function_{index}") for index in range(50))
        assert not any(elf.defines(f"function_{index}") for index in range(50, 99))
        assert not elf.defines("elsewhere_1")
        assert not elf.defines("")


def test_symbols_agree_with_nm(hashed: Path) -> None:
    with Elf(hashed) as elf:
        symbols = list(elf.symbols())
    assert {name.decode() for name, defined, _ in symbols if defined} == nm(
        hashed, "--defined-only"
    )
    assert {name.decode() for name, defined, _ in symbols if not defined} == nm(
        hashed, "--undefined-only"
    )


def test_symbols_are_counted_without_section_headers(hashed: Path) -> None:
    with Elf(hashed) as elf:
        expected = sorted(name for name, _, _ in elf.symbols())
    data = bytearray(hashed.read_bytes())
    data[0x28:0x30] = bytes(8)  # e_shoff
    data[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    hashed.write_bytes(data)
    with Elf(hashed) as elf:
        assert sorted(name for name, _, _ in elf.symbols()) == expected
        assert elf.section(".text") is None


def test_lookup_in_torch_agrees_with_nm(torch_root: Path) -> None:
    library = torch_root / "lib" / "libc10.so"
    defined = sorted(nm(library, "--defined-only"))
    undefined = sorted(nm(library, "--undefined-only"))
    chosen = random.Random(0).sample(defined, 300)
    with Elf(library) as elf:
        assert [name for name in chosen if not elf.defines(name)] == []
        assert [name for name in undefined if elf.defines(name)] == []


def test_needed_and_versions_agree_with_readelf(torch_root: Path) -> None:
    library = torch_root / "lib" / "libc10.so"
    dynamic = output("readelf", "-dW", str(library))
    versions = output("readelf", "-VW", str(library))
    with Elf(library) as elf:
        libraries = elf.header.needed
        version_needs = elf.version_needs()
    assert [f"[{name}]" in dynamic for name in libraries] == [True] * dynamic.count("(NEEDED)")
    names = versions.partition(".gnu.version_r")[2]
    assert len(version_needs) == names.count("Name: ")
    assert all(f"Name: {version}" in names for _, version in version_needs)


@pytest.mark.parametrize("number", [1, 2])
def test_a_reference_without_a_version_finds_what_the_dynamic_linker_finds(
    tmp_path: Path, number: int
) -> None:
    """glibc takes the first version that a library ever had, hidden or not, and no later one."""
    library = tmp_path / "libversioned.so"
    source = tmp_path / "versioned.c"
    source.write_text(
        "int implementation(void) { return 7; }\n"
        f'__asm__(".symver implementation, function@V_{number}");\n'
    )
    script = "V_1 { global: other; local: implementation; }; V_2 { global: another; } V_1;"
    shared_object(library, defined=["other", "another"], versions=script, flags=[str(source)])
    client = shared_object(tmp_path / "client.so", undefined=["function"])
    program = "import ctypes, sys; [ctypes.CDLL(p, ctypes.RTLD_GLOBAL) for p in sys.argv[1:]]"
    loads = subprocess.run([sys.executable, "-c", program, library, client], capture_output=True)
    with Elf(library) as elf:
        assert elf.defines("function") == (loads.returncode == 0) == (number == 1)


@pytest.mark.parametrize("segment", ["first", "last"])
def test_the_alignment_is_that_of_the_least_aligned_segment(
    sample: Path, tmp_path: Path, segment: str
) -> None:
    """The dynamic linker refuses a library for one segment that is finer than a page."""
    data = bytearray(sample.read_bytes())
    (table,) = struct.unpack_from("<Q", data, 0x20)
    (count,) = struct.unpack_from("<H", data, 0x38)
    headers = range(table, table + count * 56, 56)
    loads = [at for at in headers if struct.unpack_from("<I", data, at)[0] == 1]
    assert len(loads) > 2
    for at in loads:
        struct.pack_into("<Q", data, at + 48, 0x10000)
    struct.pack_into("<Q", data, loads[0 if segment == "first" else -1] + 48, 0x1000)
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with Elf(path) as elf:
        assert elf.header.alignment == 0x1000


def test_sections_hold_what_was_written(sample: Path) -> None:
    with Elf(sample) as elf:
        raw = elf.section_bytes(".torch_extension.record")
        assert elf.section(".torch_extension.nothing") is None
        assert elf.section_bytes(".torch_extension.nothing") is None
    assert raw is not None
    assert raw.startswith(b'{"schema": 1')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too short"),
        (b"\x7fELF", "too short"),
        (b"#!/bin/sh\n" * 20, "no ELF magic"),
        (b"\x7fELF\x01\x01" + bytes(100), "64-bit"),
        (b"\x7fELF\x02\x02" + bytes(100), "little-endian"),
        (b"\x7fELF\x02\x01" + bytes(116), "file version ident"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\1\0>\0\1" + bytes(99), "not a shared object"),
    ],
)
def test_what_is_no_shared_object_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(ElfError, match=message):
        Elf(path)


def test_a_name_that_its_table_cuts_is_damage_and_no_bound(tmp_path: Path) -> None:
    """However far into the table it begins."""
    names = [letter * 30_000 for letter in "abc"]
    path = shared_object(tmp_path / "x.so", defined=names, undefined=["elsewhere"])
    data = bytearray(path.read_bytes())
    with Elf(path) as elf:
        start, size = elf._strings
    old = data.index(b"\0elsewhere\0", start) + 1 - start
    new = max(data.index(name.encode(), start) for name in names) + 29_000 - start
    assert new > 1 << 16 > size - new
    symbol = data.index(struct.pack("<IBBHQQ", old, 0x10, 0, 0, 0, 0))
    struct.pack_into("<I", data, symbol, new)
    table_size = data.index(struct.pack("<QQ", 10, size))  # DT_STRSZ
    struct.pack_into("<Q", data, table_size + 8, new + 100)
    path.write_bytes(data)
    with Elf(path) as elf, pytest.raises(ElfError, match="a string does not end"):
        elf.references()


def test_a_truncated_file_says_so(sample: Path, tmp_path: Path) -> None:
    data = sample.read_bytes()
    path = tmp_path / "cut.so"
    path.write_bytes(data[: len(data) - 100])
    with pytest.raises(ElfError, match="truncated"):
        Elf(path)
