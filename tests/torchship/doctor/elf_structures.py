"""The structures of an ELF file and of GPU code, packed from named numbers, right or wrong ones."""

from __future__ import annotations

import struct
from typing import NamedTuple

# Tags of the dynamic section.
NEEDED = 1
STRING_TABLE = 5
SYMBOL_TABLE = 6
STRING_TABLE_SIZE = 10
HASH_TABLE = 4
RUNPATH = 29
GNU_HASH_TABLE = 0x6FFFFEF5
VERSION_DEFINITIONS = 0x6FFFFFFC
VERSION_DEFINITIONS_COUNT = 0x6FFFFFFD
VERSION_NEEDS = 0x6FFFFFFE
VERSION_NEEDS_COUNT = 0x6FFFFFFF


class Symbol(NamedTuple):
    name: int
    info: int = 0x10  # global
    visibility: int = 0
    section: int = 0  # undefined
    value: int = 0
    size: int = 0

    def pack(self) -> bytes:
        return struct.pack("<IBBHQQ", *self)


class Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_size: int
    memory_size: int
    alignment: int

    def pack(self) -> bytes:
        return struct.pack("<IIQQQQQQ", *self)


class SectionHeader(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int = 0
    info: int = 0
    alignment: int = 1
    entry_size: int = 0

    def pack(self) -> bytes:
        return struct.pack("<IIQQQQIIQQ", *self)


class FileHeader(NamedTuple):
    """The header of a shared object for x86-64."""

    section_headers: int
    """Their offset."""
    section_count: int
    names_section: int
    kind: int = 3
    machine: int = 62
    version: int = 1

    def pack(self) -> bytes:
        identity = struct.pack("<4sBBB9x", b"\x7fELF", 2, 1, 1)
        start = struct.pack("<HHI", self.kind, self.machine, self.version)
        places = struct.pack("<QQQI", 0, 64, self.section_headers, 0)
        sizes = struct.pack("<HHH", 64, 56, 2)
        sections = struct.pack("<HHH", 64, self.section_count, self.names_section)
        return identity + start + places + sizes + sections


class VersionNeed(NamedTuple):
    version: int
    entries: int
    file: int
    first: int
    next: int

    def pack(self) -> bytes:
        return struct.pack("<HHIII", *self)


class NeededVersion(NamedTuple):
    hash: int
    flags: int
    number: int
    name: int
    next: int

    def pack(self) -> bytes:
        return struct.pack("<IHHII", *self)


class VersionDefinition(NamedTuple):
    """A definition with one name."""

    version: int
    flags: int
    number: int
    entries: int
    hash: int
    first: int
    next: int
    name: int
    next_name: int

    def pack(self) -> bytes:
        return struct.pack("<HHHHIIIII", *self)


class GnuHashHeader(NamedTuple):
    buckets: int
    first_symbol: int
    bloom_size: int
    bloom_shift: int
    bloom: int

    def pack(self) -> bytes:
        return struct.pack("<IIIIQ", *self)


class FatbinHeader(NamedTuple):
    """The start of a container of GPU code."""

    size: int
    magic: int = 0xBA55ED50
    version: int = 1
    header_size: int = 16

    def pack(self) -> bytes:
        return struct.pack("<IHHQ", self.magic, self.version, self.header_size, self.size)


class FatbinEntry(NamedTuple):
    """The start of one image of GPU code."""

    header_size: int
    size: int
    architecture: int
    kind: int = 2  # machine code
    version: int = 1
    minor: int = 0
    major: int = 0
    flags: int = 0

    def pack(self) -> bytes:
        """Padded to the size of its header."""
        start = struct.pack("<HHIQ", self.kind, self.version, self.header_size, self.size)
        target = struct.pack("<8xHHI", self.minor, self.major, self.architecture)
        header = start + target + struct.pack("<8xQ", self.flags)
        return header.ljust(self.header_size, b"\0")
