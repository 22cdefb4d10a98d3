"""Read an ELF shared object with `pread`, without loading it.

The reader handles only 64-bit little-endian files. It maps no file into memory, because a
mapped file that shrinks kills the process that reads it. Every read is checked against the
size of the file, and asks the budget of the run, if there is one. A malformed file causes at worst
an `ElfError`, never a crash. Many entries can share one long string: where names lie over each
other more often than in any real file, the error is an `ElfBoundError`, since the file may be
whole. If a file has a GNU hash table, `defines` looks a symbol up in that table, as the dynamic
linker does; in `libtorch_cpu.so` (400 MB) this takes microseconds.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ..project import Record
from ..text import printable

if TYPE_CHECKING:
    from ..budget import Budget

MAGIC = b"\x7fELF"  #: how every ELF file begins
MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64"}
MACHINES |= {243: "riscv64", 258: "loongarch64"}

#: Tables are read in such pieces, and names and chains at first in such small ones.
_PIECE = 24 << 15
_USUAL_NAME, _USUAL_CHAIN = 1 << 9, 8
#: Small parts of a table that lie near each other are read in such pieces.
_NEAR = 1 << 12
#: How often the names may cover their table: those of symbols, and those of libraries and versions,
#: which are few and repeat each other.
_COVER_OF_SYMBOLS, _COVER_OF_VERSIONS, _FEW_NAMES = 2, 16, 1 << 16
#: Linux opens no longer path.
_PATH_MAX = 4096
#: A build record is smaller.
_RECORD_BYTES = 1 << 16

_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB = 1, 4, 5, 6
_DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 10, 14, 15, 29
_DT_FLAGS, _DT_FLAGS_1 = 30, 0x6FFFFFFB
#: The place and the size of each table of relocations.
_DT_RELOCATIONS = ((7, 8), (23, 2))
#: Tag `_DT_VERDEF + 1` counts the version definitions, tag `_DT_VERNEED + 1` the version needs.
_DT_GNU_HASH, _DT_VERDEF, _DT_VERNEED = 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFE
_DT_VERSYM = 0x6FFFFFF0
_DF_STATIC_TLS = 0x10
_DF_1_NOOPEN, _DF_1_NODEFLIB, _DF_1_PIE = 0x40, 0x800, 0x08000000
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_TLS, _PT_GNU_STACK = 1, 2, 3, 7, 0x6474E551
_PF_X = 1
#: The smallest pages of a machine. A segment lies in them as in memory, or is not mapped.
_SMALLEST_PAGE = 4096
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2
#: In the table of the symbols' versions, this bit marks a version that is not the default one,
#: and the numbers below 2 mark symbols without a version.
_VERSION_HIDDEN, _FIRST_VERSION = 0x8000, 2
_STB_LOCAL, _STB_WEAK = 0, 2
_SHT_NOBITS, _SHT_DYNSYM = 8, 11
_EI_OSABI = 7  # then the version of the ABI, and padding up to _EI_NIDENT
_EI_NIDENT = 16
_ELF_VERSION = 1
_ABI_SYSTEM_V, _ABI_GNU = 0, 3
#: glibc takes these versions of the GNU ABI, and of any other ABI only version 0.
_GNU_ABI_VERSIONS = range(4)


class ElfError(ValueError):
    """The file is damaged or no 64-bit ELF shared object, or an `ElfBoundError`."""


class ElfBoundError(ElfError):
    """The names of the file lie over each other, which would cost far more than its size; it may be
    whole."""


class ElfSectionError(ElfError):
    """The section headers are damaged, which the dynamic linker does not read."""


class VersionNeed(Record):
    """A symbol version that a file needs of a library."""

    library: str
    version: str
    is_weak: bool  #: the dynamic linker only warns where the library lacks the version
    number: int  #: that stands for the version in the table of the symbols' versions


class Reference(Record):
    """A strong undefined symbol, and the version that it needs; "" for any."""

    name: bytes
    version: str


class Header(Record, kw_only=True):
    """What a file's headers and its dynamic segment say to the dynamic linker.

    It reaches the rules whole: in `BinaryRecord.header`, and for the libraries that come with an
    object in `Opening.new`. So a new fact is a field here, and `Elf` reads it.
    """

    machine: int = 0  #: a key of `MACHINES`, or an unknown number
    is_program: bool = False  #: whether the file is an executable, which `dlopen` refuses
    alignment: int = (
        0  #: the smallest alignment of a loadable segment, in bytes; 0 if there is none
    )
    interpreter: str = ""  #: the dynamic linker that a program names; "" if none
    #: Whether the file asks for an executable stack; None if it does not say.
    executable_stack: bool | None = None
    needed: tuple[str, ...] = ()  #: the libraries of DT_NEEDED, in order
    runpath: str = ""  #: DT_RUNPATH, else DT_RPATH, else ""
    has_runpath: bool = False  #: whether there is a DT_RUNPATH
    soname: str = ""  #: DT_SONAME; "" if there is none
    #: Whether the linker looks for the libraries in the folders of the system, too.
    searches_default_folders: bool = True
    forbids_dlopen: bool = False  #: whether the file was linked with `-z nodlopen`
    static_tls: int = 0  #: the bytes of thread-local storage that must lie in the static block
    #: Whether the file says which version each of its symbols has, if any.
    has_symbol_versions: bool = True

    @property
    def processor(self) -> str:
        """`x86_64`, `aarch64` and the like, or `machine 999` for an unknown one."""
        return MACHINES.get(self.machine, f"machine {self.machine}")

    @property
    def refusal(self) -> str:
        """Why a process that runs cannot load the whole file, in the linker's words; "" if not."""
        return "shared object cannot be dlopen()ed" if self.forbids_dlopen else ""


class _Near:
    """Reads parts of a file that lie near each other, a piece of the file at a time."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._start = 0
        self._piece = b""

    def read(self, offset: int, size: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._piece):
            length = max(size, min(_NEAR, self._elf.size - offset))
            self._start, self._piece, at = offset, self._elf.read(offset, length), 0
        return self._piece[at : at + size]


class Elf:
    """An open ELF file, a context manager. Symbol names are bytes; other names are printable text.

    Attributes:
        header: what the headers and the dynamic segment say.
        size: the file's size in bytes.

    Raises:
        ElfError: the file is not a whole ELF shared object.
        ElfBoundError: its names lie over each other.
        BudgetSpentError: the budget is spent; every method raises it.
        OSError: the file cannot be opened or read.
    """

    def __init__(self, path: str | os.PathLike[str], budget: Budget | None = None) -> None:
        self._budget = budget
        # O_NONBLOCK: a FIFO in the place of a library must not hang the import.
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(self._file)
            if not stat.S_ISREG(status.st_mode):
                raise ElfError("not a regular file")
            self.size = status.st_size
            self._names_left = 0
            self._names = _Near(self)
            self._versions_read = _Near(self)
            self._read_dynamic(self._read_headers())
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        self._file = -1  # the system may reuse the number

    def spend(self, size: int = 0) -> None:
        """Ask the budget for a step and for bytes that are read or kept."""
        if self._budget is not None:
            self._budget.spend(size)

    def _range(self, offset: int, size: int, what: str) -> tuple[int, int]:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ElfError(
                f"truncated or corrupt: {what} ends at byte {offset + size}, "
                f"the file at {self.size}"
            )
        return offset, size

    def read(self, offset: int, size: int, what: str = "a read") -> bytes:
        """The bytes of a range of the file; `truncated or corrupt` errors call the range `what`."""
        self._range(offset, size, what)
        self.spend(size)
        data = os.pread(self._file, size, offset)
        if len(data) != size:
            raise ElfError("the file became shorter while it was read")
        return data

    def _entries(self, form: str, offset: int, size: int, what: str) -> Iterator[tuple[int, ...]]:
        """The whole entries of a table, of which a piece at a time is read."""
        self._range(offset, size, what)
        step = struct.calcsize(form)
        piece = _PIECE // step * step
        for at in range(offset, offset + size // step * step, piece):
            left = offset + size // step * step - at
            yield from struct.iter_unpack(form, self.read(at, min(piece, left), what))

    def _string(self, offset: int) -> bytes:
        """The string at `offset` of the string table."""
        start, size = self._strings
        length = _USUAL_NAME
        while True:
            content = self.read(start + offset, max(0, min(size - offset, length)))
            name, nul, _ = content.partition(b"\0")
            if nul:
                return name
            if length >= size - offset:
                raise ElfError("a string does not end")
            length *= 16

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack(form, self.read(offset, struct.calcsize(form)))

    def _name(self, offset: int) -> str:
        """The string at `offset` of the string table."""
        start, size = self._strings
        if not 0 <= offset < size:
            raise ElfError("a string lies outside its table")
        usual = self._names.read(start + offset, min(size - offset, _USUAL_NAME))
        name, nul, _ = usual.partition(b"\0")
        if not nul:
            name = self._string(offset)
        self._names_left -= len(name)
        if self._names_left < 0:
            raise ElfBoundError("names of libraries and versions that lie over each other")
        return printable(name)

    def _read_headers(self) -> tuple[int, int]:
        """Read the program and section headers; return (offset, size) of the dynamic segment."""
        if self.size < 64:
            raise ElfError(f"{self.size} bytes, too short for an ELF header")
        head = self.read(0, 64)
        if head[:4] != MAGIC:
            raise ElfError("no ELF magic number")
        if head[4:6] != b"\x02\x01":
            raise ElfError("not a 64-bit little-endian ELF file")
        if fault := header_fault(head):
            raise ElfError(fault)
        kind, machine, _, _, phoff, shoff, *others = struct.unpack_from("<HHIQQQIHHHHHH", head, 16)
        _, _, phentsize, phnum, shentsize, shnum, shstrndx = others
        if kind not in (_ET_EXEC, _ET_DYN):
            raise ElfError(f"ELF type {kind} is not a shared object")
        if phnum and phentsize != 56:
            raise ElfError(f"program headers of {phentsize} bytes")
        segments = self.read(phoff, phnum * 56, "the program header table")
        if shnum and shentsize != 64:
            raise ElfSectionError(f"section headers of {shentsize} bytes")
        try:
            sections = self.read(shoff, shnum * 64, "the section header table") if shnum else b""
        except ElfError as error:
            raise ElfSectionError(str(error)) from None
        self._sections = list(struct.iter_unpack("<IIQQQQIIQQ", sections))
        self._names_section = shstrndx
        header = Header(machine=machine, is_program=kind == _ET_EXEC)
        return self._read_segments(segments, header)

    def _read_segments(self, segments: bytes, header: Header) -> tuple[int, int]:
        """Read the program header table; return (offset, size) of the dynamic segment."""
        self._loads: list[tuple[int, int, int]] = []
        dynamic = None
        alignment = 0
        interpreter = ""
        executable_stack: bool | None = None
        self._tls_size = 0
        headers = struct.iter_unpack("<IIQQQQQQ", segments)
        for p_type, flags, offset, vaddr, _, filesz, memsz, align in headers:
            if p_type == _PT_LOAD:
                alignment = min(alignment or align, align)
                self._range(offset, filesz, "a loadable segment")
                if (vaddr - offset) % _SMALLEST_PAGE:
                    raise ElfError("a loadable segment does not lie on its page")
                self._loads.append((vaddr, offset, filesz))
            elif p_type == _PT_DYNAMIC:
                dynamic = self._range(offset, filesz, "the dynamic segment")
            elif p_type == _PT_INTERP:
                path = self.read(offset, min(filesz, _PATH_MAX), "the name of the linker")
                interpreter = printable(path.partition(b"\0")[0])
            elif p_type == _PT_TLS:
                self._tls_size = memsz
            elif p_type == _PT_GNU_STACK:
                executable_stack = bool(flags & _PF_X)
        if dynamic is None and header.is_program:
            raise ElfError(f"ELF type {_ET_EXEC} is not a shared object")
        if dynamic is None:
            raise ElfError("no dynamic segment: a static object or a debug file")
        self.header = header._replace(
            alignment=alignment, interpreter=interpreter, executable_stack=executable_stack
        )
        return dynamic

    def _offset(self, address: int) -> int:
        for vaddr, offset, size in self._loads:
            if vaddr <= address < vaddr + size:
                return address - vaddr + offset
        raise ElfError(f"address {address:#x} lies in no segment")

    def _read_dynamic(self, dynamic: tuple[int, int]) -> None:
        offset, size = dynamic
        tags: dict[int, int] = {}
        name_offsets: list[int] = []
        for tag, value in self._entries("<QQ", offset, size, "the dynamic segment"):
            if tag == 0:
                break
            if tag == _DT_NEEDED:
                name_offsets.append(value)
            else:
                tags[tag] = value
        if _DT_STRTAB not in tags or _DT_STRSZ not in tags:
            raise ElfError("no string table")
        self._tags = tags
        start = self._offset(tags[_DT_STRTAB])
        self._strings = self._range(start, tags[_DT_STRSZ], "the string table")
        self._names_left = max(_COVER_OF_VERSIONS * tags[_DT_STRSZ], _FEW_NAMES)
        runpath = tags.get(_DT_RUNPATH, tags.get(_DT_RPATH))
        flags = tags.get(_DT_FLAGS, 0)
        flags_1 = tags.get(_DT_FLAGS_1, 0)
        self.header = self.header._replace(
            needed=tuple(map(self._name, name_offsets)),
            runpath="" if runpath is None else self._name(runpath),
            has_runpath=_DT_RUNPATH in tags,
            soname=self._name(tags[_DT_SONAME]) if _DT_SONAME in tags else "",
            is_program=self.header.is_program or bool(flags_1 & _DF_1_PIE),
            forbids_dlopen=bool(flags_1 & _DF_1_NOOPEN),
            searches_default_folders=not flags_1 & _DF_1_NODEFLIB,
            static_tls=self._tls_size if flags & _DF_STATIC_TLS else 0,
            has_symbol_versions=_DT_VERSYM in tags,
        )
        self._gnu: tuple[int, ...] | None = None
        if _DT_GNU_HASH in tags and _DT_SYMTAB in tags:
            at = self._offset(tags[_DT_GNU_HASH])
            buckets, first, bloom, shift = self._unpack("<IIII", at)
            if bloom == 0 or buckets > self.size // 4 or bloom > self.size // 8:
                raise ElfError("a corrupt symbol hash table")
            # `_gnu`: the number of buckets, the first hashed symbol, the size (in words)
            # and shift of the Bloom filter; the file offsets of filter, buckets and symbol
            # 0's chain entry.
            bucket_at = at + 16 + bloom * 8
            places = at + 16, bucket_at, bucket_at + (buckets - first) * 4
            self._gnu = buckets, first, bloom, shift, *places

    def section(self, name: str) -> tuple[int, int] | None:
        """(offset, size) of the first section called `name` that has bytes in the file, or None."""
        terminated = name.encode() + b"\0"
        for at, kind, _, _, offset, size, *_ in self._sections:
            if kind != _SHT_NOBITS and self._section_names.startswith(terminated, at):
                return self._range(offset, size, f"section {name}")
        return None

    @cached_property
    def _section_names(self) -> bytes:
        """The section name table; every section's header gives an offset into the table."""
        if self._names_section >= len(self._sections):
            return b""
        offset, size = self._sections[self._names_section][4:6]
        return self.read(offset, size, "the section name table")

    def section_bytes(self, name: str) -> bytes | None:
        """The content of the section that `section` finds; None if it finds none."""
        place = self.section(name)
        if place is None:
            return None
        if place[1] > _RECORD_BYTES:
            raise ElfError(f"section {name} has {place[1]} bytes, too many to read")
        return self.read(*place)

    def _linked(self, at: int, count: int, form: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(place, fields) of at most `count` entries; the last field is the step to the next."""
        size = struct.calcsize(form)
        for _ in range(count):
            self.spend()
            fields = struct.unpack(form, self._versions_read.read(at, size))
            yield at, fields
            if not fields[-1]:
                return
            at += fields[-1]

    def _versions(self, tag: int, form: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        if tag in self._tags:
            count = self._tags.get(tag + 1, 0)
            yield from self._linked(self._offset(self._tags[tag]), count, form)

    def version_needs(self) -> tuple[tuple[str, str], ...]:
        """The (library, version) pairs that the file needs: `("libc.so.6", "GLIBC_2.28")`."""
        return tuple((need.library, need.version) for need in self.versions_of_libraries)

    @cached_property
    def versions_of_libraries(self) -> tuple[VersionNeed, ...]:
        """The symbol versions that the file needs of its libraries."""
        needs: list[VersionNeed] = []
        for at, (_, count, file, aux, _) in self._versions(_DT_VERNEED, "<HHIII"):
            library = self._name(file)
            for _, (_, flags, number, name, _) in self._linked(at + aux, count, "<IHHII"):
                needs.append(
                    VersionNeed(
                        library=library,
                        version=self._name(name),
                        is_weak=bool(flags & _VER_FLG_WEAK),
                        number=number & ~_VERSION_HIDDEN,
                    )
                )
        return tuple(needs)

    def version_definitions(self) -> tuple[str, ...]:
        """The symbol versions that this library defines, such as `GLIBCXX_3.4.30`."""
        return tuple(name for _, _, name in self._version_definitions)

    @cached_property
    def _version_definitions(self) -> tuple[tuple[int, int, str], ...]:
        """(flags, number, name) of each version that this library defines."""
        return tuple(
            (
                flags,
                number,
                self._name(struct.unpack("<II", self._versions_read.read(at + aux, 8))[0]),
            )
            for at, (_, flags, number, count, _, aux, _) in self._versions(_DT_VERDEF, "<HHHHIII")
            if count
        )

    @cached_property
    def _version_names(self) -> dict[int, str]:
        """The defined versions by number; the library's own name is not one of them."""
        definitions = self._version_definitions
        return {n: name for flags, n, name in definitions if not flags & _VER_FLG_BASE}

    def _has_version(self, symbol: int, version: str) -> bool:
        """Whether the dynamic linker binds a reference with this version to this symbol."""
        if _DT_VERSYM not in self._tags:
            return True
        (number,) = self._unpack("<H", self._offset(self._tags[_DT_VERSYM]) + symbol * 2)
        is_hidden = bool(number & _VERSION_HIDDEN)
        number &= ~_VERSION_HIDDEN
        if not version:
            return number <= _FIRST_VERSION or not is_hidden
        name = self._version_names.get(number)
        return not is_hidden if name is None else name == version

    def _chain(self, index: int) -> Iterator[tuple[int, int]]:
        """(number, hash) of each symbol from number `index` to the last one of its bucket."""
        assert self._gnu is not None
        at = self._gnu[-1] + index * 4
        length = _USUAL_CHAIN
        while True:  # a chain ends with the file, if nothing ends it before
            left = (self.size - at) // 4
            for (value,) in self._entries("<I", at, min(length, max(left, 1)) * 4, "a hash chain"):
                yield index, value
                if value & 1:
                    return
                index += 1
            at += length * 4
            length *= 16

    def _symbol_count(self) -> int:
        """The number of dynamic symbols: by the section header, else by a hash table, else by the
        relocations, which name those that the dynamic linker looks up."""
        for _, kind, _, _, _, size, *_ in self._sections:
            if kind == _SHT_DYNSYM:
                return int(size) // 24
        if _DT_HASH in self._tags:
            return self._unpack("<II", self._offset(self._tags[_DT_HASH]))[1]
        last = max(self._buckets(), default=0)
        if self._gnu is None or last < self._gnu[1]:
            return self._relocated_symbols()
        return max(symbol for symbol, _ in self._chain(last)) + 1

    def _buckets(self) -> Iterator[int]:
        """The first symbol of each bucket of the GNU hash table; 0 for an empty bucket."""
        if self._gnu is not None:
            buckets, _, _, _, _, bucket_at, _ = self._gnu
            table = self._entries("<I", bucket_at, buckets * 4, "the symbol hash table")
            yield from (first for (first,) in table)

    def _relocated_symbols(self) -> int:
        """One more than the highest number of a symbol that a relocation names."""
        highest = -1
        for place, size_tag in _DT_RELOCATIONS:
            size = self._tags.get(size_tag, 0) // 24 * 24
            if place not in self._tags or not size:
                continue
            start = self._offset(self._tags[place])
            for _, info, _ in self._entries("<QQq", start, size, "the relocations"):
                highest = max(highest, info >> 32)
        return highest + 1

    def symbols(self) -> Iterator[tuple[bytes, bool, bool]]:
        """(name, defined, weak) of every dynamic symbol that has a name and is not local."""
        for _, name, is_defined, is_weak in self._numbered_symbols():
            yield name, is_defined, is_weak

    def _numbered_symbols(self) -> Iterator[tuple[int, bytes, bool, bool]]:
        """As `symbols`, with the number of each symbol first."""
        if _DT_SYMTAB not in self._tags:
            return
        at = self._offset(self._tags[_DT_SYMTAB])
        size = self._symbol_count() * 24
        self._range(at, size, "the symbol table")
        strings = self.read(*self._strings)
        left = _COVER_OF_SYMBOLS * len(strings)
        for number, entry in enumerate(self._entries("<IBBHQQ", at, size, "the symbol table")):
            name, info, _, section, _, _ = entry
            if name == 0 or info >> 4 == _STB_LOCAL:
                continue
            end = strings.find(b"\0", name)
            if end < 0:
                raise ElfError("a string does not end")
            left -= end - name
            if left < 0:
                raise ElfBoundError("names of symbols that lie over each other")
            yield number, strings[name:end], section != 0, info >> 4 == _STB_WEAK

    def references(self) -> list[Reference]:
        """The strong undefined symbols, which the dynamic linker looks up.

        A GNU hash table holds the defined symbols alone, in the last part of the symbol
        table. So of a library of 400 MB, only the first part of the table is read. An empty hash
        table, of an object that exports nothing, says nothing about the symbols.
        """
        if self._gnu is None or not any(self._buckets()):
            numbered = self._numbered_symbols()
            strong: Iterable[tuple[int, bytes]] = (
                (n, name) for n, name, defined, weak in numbered if not (defined or weak)
            )
        else:
            strong = self._first_references(self._gnu[1])
        versions = {need.number: need.version for need in self.versions_of_libraries}
        return [
            Reference(name, versions.get(self._version_number(number), "") if versions else "")
            for number, name in strong
        ]

    def _first_references(self, count: int) -> Iterator[tuple[int, bytes]]:
        """(number, name) of the strong undefined symbols among the first `count` symbols."""
        at = self._offset(self._tags[_DT_SYMTAB])
        left = _COVER_OF_SYMBOLS * self._strings[1]
        table = self._entries("<IBBHQQ", at, count * 24, "the symbol table")
        for number, entry in enumerate(table):
            offset, info, _, section, _, _ = entry
            if offset == 0 or section or info >> 4 in (_STB_LOCAL, _STB_WEAK):
                continue
            name = self._string(offset)
            left -= len(name)
            if left < 0:
                raise ElfBoundError("names of symbols that lie over each other")
            yield number, name

    def _version_number(self, symbol: int) -> int:
        if _DT_VERSYM not in self._tags:
            return 0
        (number,) = self._unpack("<H", self._offset(self._tags[_DT_VERSYM]) + symbol * 2)
        return number & ~_VERSION_HIDDEN

    @cached_property
    def _defined(self) -> dict[bytes, list[int]]:
        """The numbers of the defined symbols of each name."""
        numbers: dict[bytes, list[int]] = {}
        for number, name, is_defined, _ in self._numbered_symbols():
            if is_defined:
                numbers.setdefault(name, []).append(number)
        return numbers

    @cached_property
    def _bloom(self) -> bytes:
        """The Bloom filter, which rules out most symbols that are not exported."""
        assert self._gnu is not None
        _, _, bloom, _, bloom_at, _, _ = self._gnu
        return self.read(bloom_at, bloom * 8, "the symbol hash table")

    def defines(self, name: str | bytes, *, version: str = "") -> bool:
        """Whether the dynamic linker finds `name` of this version ("" for any) in this library.

        The name is looked up in the library's GNU hash table if it has one.
        """
        self.spend()
        encoded = name.encode() if isinstance(name, str) else name
        if self._gnu is None:
            numbers = self._defined.get(encoded, ())
            return any(self._has_version(number, version) for number in numbers)
        value = gnu_hash(encoded)
        index = self._bucket(value)
        if index is None:
            return False
        for symbol, chained in self._chain(index):
            is_same_hash = chained | 1 == value | 1
            if is_same_hash and self._exports(symbol, encoded, version):
                return True
        return False

    def _bucket(self, value: int) -> int | None:
        """The first symbol of the bucket of a hash; None if no symbol has this hash."""
        assert self._gnu is not None
        buckets, first, bloom, shift, _, bucket_at, _ = self._gnu
        if not buckets:
            return None
        (word,) = struct.unpack_from("<Q", self._bloom, value // 64 % bloom * 8)
        mask = (1 << (value % 64)) | (1 << ((value >> (shift & 31)) % 64))
        if word & mask != mask:
            return None
        (index,) = self._unpack("<I", bucket_at + (value % buckets) * 4)
        return None if index < first else index

    def _exports(self, symbol: int, name: bytes, version: str) -> bool:
        """Whether the symbol of this number has this name and fits the version, and is defined
        and not local."""
        table = self._offset(self._tags[_DT_SYMTAB])
        start, size = self._strings
        offset, info, _, section = self._unpack("<IBBH", table + symbol * 24)
        if not section or info >> 4 == _STB_LOCAL or offset + len(name) >= size:
            return False
        is_named = self.read(start + offset, len(name) + 1) == name + b"\0"
        return is_named and self._has_version(symbol, version)


def header_fault(head: bytes) -> str:
    """Why glibc refuses a file with this ELF header, in its own words; "" if it does not.

    `head` begins with the magic number and is whole. The class, the machine and the type of the
    file are not looked at.
    """
    abi, abi_version = head[_EI_OSABI], head[_EI_OSABI + 1]
    if head[5] != 1:
        return "ELF file data encoding not little-endian"
    if head[6] != _ELF_VERSION:
        return "ELF file version ident does not match current one"
    if abi not in (_ABI_SYSTEM_V, _ABI_GNU):
        return "ELF file OS ABI invalid"
    if abi_version and not (abi == _ABI_GNU and abi_version in _GNU_ABI_VERSIONS):
        return "ELF file ABI version invalid"
    if any(head[_EI_OSABI + 2 : _EI_NIDENT]):
        return "nonzero padding in e_ident"
    if struct.unpack_from("<I", head, 20)[0] != _ELF_VERSION:
        return "ELF file version does not match current one"
    return ""


@lru_cache(maxsize=1 << 14)
def gnu_hash(name: bytes) -> int:
    """The hash of a name in `.gnu.hash`: Bernstein's, in 32 bits."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value
