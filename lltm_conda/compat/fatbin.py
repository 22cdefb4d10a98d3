"""Find the GPU architectures in a `.nv_fatbin` section, without the CUDA toolkit.

A section is a row of containers (magic 0xBA55ED50), each a row of entries: PTX (kind 1) or machine
code (kind 2) for one architecture.
"""

from __future__ import annotations

import struct

from .elf import Elf, ElfError

_MAGIC = 0xBA55ED50
_MAX_ENTRIES = 100_000
#: Bits of an entry's flags: code that runs on exactly this architecture ("sm_90a") or within its
#: family ("sm_100f").
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 1 << 20, 1 << 21


def architectures(elf: Elf) -> tuple[str, ...]:
    """`("sm_80", "sm_90", "compute_90")`: machine code first, then PTX, each ascending.

    Raises:
        ElfError: when the section is there and cannot be walked.
    """
    found: set[tuple[bool, int, str]] = set()
    section = elf.section(".nv_fatbin")
    if section is None:
        return ()
    at, size = section
    end = at + size
    entries = 0
    while at + 16 <= end:
        magic, _, header, length = struct.unpack("<IHHQ", elf.read(at, 16))
        if magic != _MAGIC:
            # Containers are padded to 8 bytes.
            at += 8
            entries += 1
            if entries > _MAX_ENTRIES:
                raise ElfError("a corrupt .nv_fatbin section")
            continue
        stop = at + header + length
        if header < 16 or stop > end:
            raise ElfError("a GPU code container reaches beyond its section: truncated or corrupt")
        entry = at + header
        while entry + 64 <= stop:
            kind, _, head, payload = struct.unpack("<HHIQ", elf.read(entry, 16))
            (arch,) = struct.unpack("<I", elf.read(entry + 28, 4))
            (flags,) = struct.unpack("<Q", elf.read(entry + 40, 8))
            entries += 1
            if head < 32 or entry + head + payload > stop or entries > _MAX_ENTRIES:
                raise ElfError("a corrupt GPU code entry")
            if kind in (1, 2) and 10 <= arch <= 999:
                letter = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
                found.add((kind == 1, arch, letter))
            entry += head + payload
        at = stop
    return tuple(
        f"{'compute' if ptx else 'sm'}_{arch}{letter}" for ptx, arch, letter in sorted(found)
    )
