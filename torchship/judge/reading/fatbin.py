"""Find the GPU code in a `.nv_fatbin` section, without the CUDA toolkit.

The section is a list of containers (magic 0xBA55ED50). A container is a header and a list
of entries. An entry is PTX (kind 1) or machine code (kind 2) for one architecture, or of
another kind.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .elf import Elf, ElfError

#: The names of generations that TORCH_CUDA_ARCH_LIST accepts besides numbers.
GENERATIONS = {
    "maxwell": "5.0;5.2",
    "pascal": "6.0;6.1+PTX",
    "volta": "7.0+PTX",
    "turing": "7.5+PTX",
    "ampere": "8.0;8.6+PTX",
    "ada": "8.9+PTX",
    "hopper": "9.0+PTX",
    "blackwell": "10.0;12.0+PTX",
}

_MAGIC = struct.pack("<I", 0xBA55ED50)
_WINDOW = 1 << 16
#: Bits of an entry's flags: the code runs on its architecture alone ("sm_90a"), or within its
#: family ("sm_100f").
_ARCH_SPECIFIC = 1 << 20
_FAMILY_SPECIFIC = 1 << 21


class Code(NamedTuple):
    """One entry: the code for one architecture, `size` bytes starting at byte `at` of the file."""

    ptx: bool
    arch: int
    letter: str
    at: int
    size: int

    def __str__(self) -> str:
        return f"{'compute' if self.ptx else 'sm'}_{self.arch}{self.letter}"


def architectures(elf: Elf) -> tuple[str, ...]:
    """`("sm_80", "sm_90", "compute_90")`: machine code first, then PTX, each ascending.
    Raises ElfError for a corrupt section."""
    name_of = {code[:3]: str(code) for code in codes(elf)}
    return tuple(name_of[key] for key in sorted(name_of))


def codes(elf: Elf) -> Iterator[Code]:
    """The code for architectures 10 to 999 in file order. Raises ElfError for a corrupt section."""
    at, size = elf.section(".nv_fatbin") or (0, 0)
    end = at + size
    while at + 16 <= end:
        head = elf.read(at, 16)
        if head[:4] != _MAGIC:
            window = elf.read(at, min(_WINDOW, end - at))
            at += window.find(_MAGIC) if _MAGIC in window else len(window) - 3
            continue
        _, header, length = struct.unpack_from("<HHQ", head, 4)
        stop = at + header + length
        if header < 16 or stop > end:
            raise ElfError("a GPU code container reaches beyond its section: truncated or corrupt")
        entry = at + header
        while entry + 64 <= stop:
            fields = struct.unpack("<HHIQ12xI8xQ", elf.read(entry, 48))
            kind, _, head_size, payload, arch, flags = fields
            if head_size < 32 or entry + head_size + payload > stop:
                raise ElfError("a corrupt GPU code entry")
            if kind in (1, 2) and 10 <= arch <= 999:
                letter = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
                yield Code(kind == 1, arch, letter, entry + head_size, payload)
            entry += head_size + payload
        at = stop
