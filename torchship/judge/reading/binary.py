"""Read one shared object into a `BinaryRecord`, without loading it."""

import json
import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..budget import Budget, BudgetSpentError
from ..records import (
    LAYOUT_SECTION,
    RECORD_SECTION,
    VTABLE_SECTION,
    BinaryRecord,
    BuildRecord,
    GlueName,
    RecordError,
    parse_file_name,
    parse_version,
)
from ..text import printable, read_regular
from .elf import Elf, ElfBoundError
from .layouts import SLOTS

_TORCH_C = (b"aoti_torch_", b"torch_", b"THP")


def is_torch_symbol(name: bytes) -> bool:
    """Whether torch's libraries must provide this undefined symbol."""
    if name.startswith(_TORCH_C):
        return True
    if not any(part in name for part in (b"2at", b"3c10", b"5torch", b"6caffe2", b"THP")):
        return False  # so that most imports of the package compile no pattern
    # Matches functions named THP..., and functions, members, type information, virtual
    # tables, guards and thunks of at::, c10::, torch:: and caffe2:: (a namespace of
    # libc10). Each part of a name matches in one way only, so the match takes linear time.
    pattern = (
        rb"_Z(?:[0-9]+THP|(?:T[ISVTC]|GV|GR|Thn?[0-9]+_)*(?:N[rVK]*[RO]?)?"
        rb"(?:2at|3c10|5torch|6caffe2))"
    )
    return re.match(pattern, name) is not None


def is_symbol_of_torch(name: bytes) -> bool:
    """Whether this is a torch symbol, or a caster of pybind11's that libtorch_python has."""
    casters = rb"_ZN8pybind116detail11type_casterIN(?:2at|3c10|5torch)"
    return is_torch_symbol(name) or re.match(casters, name) is not None


def is_torch_library(name: str) -> bool:
    """Whether this is the file name of a library of torch, which `libtorchaudio.so` is not."""
    stem = name.partition(".")[0]
    return stem == "libtorch" or stem.startswith(("libtorch_", "libc10"))


def original_name(library: str) -> str:
    """`libfoo.so.1` for `libfoo-1a2b3c4d.so.1`, as auditwheel renames what it bundles."""
    if "-" not in library:  # as most names, so that most imports compile no pattern
        return library
    return re.sub(r"-[0-9a-f]{8}(?=[.-])", "", library, count=1)


def symbol_flavour(name: str) -> int | None:
    """The C++11 ABI flavour of a mangled name: 1, 0, or None for a name without `std::string`.

    Only flavour 1 has `std::__cxx11`, and functions that return it the tag `[abi:cxx11]`; only
    flavour 0 has the substitution `Ss` (the old `std::string`). The search for `Ss` skips
    identifiers, such as `DispatchKeySset`.
    """
    if not name.startswith("_Z"):
        return None
    if "7__cxx11" in name or "B5cxx11" in name:
        return 1
    if "Ss" not in name:
        return None
    # Digits that are no length: a literal such as Lj8E, a substitution such as S4_, a constructor
    # such as C2E, an array such as A8_. Then the length of an identifier, or `Ss`.
    part = re.compile(r"L[a-z]n?[0-9]+E|[ST][0-9A-Z]*_|[CD][0-5]E|A[0-9]+_|([0-9]+)|(Ss)")
    at = 2
    while (match := part.search(name, at)) is not None:
        if match[2]:
            return 0
        at = match.end() + (int(match[1][:6]) if match[1] else 0)
    return None


def unread(path: Path) -> BinaryRecord:
    """The record of a file of which nothing was read."""
    return BinaryRecord(path=path, kind="unreadable", name=printable(path.name))


def read_binary(
    path: str | Path, *, light: bool = False, budget: Budget | None = None
) -> BinaryRecord:
    """Read a shared object.

    If the file is malformed or cannot be read, the kind is "unreadable" and `problems` says why.
    If it costs too much to read, `too_large` does; only with the budget of a run, this raises
    BudgetSpentError. An import of the package reads its own files `light`, without a budget: it
    trusts the architectures in the record and skips the GPU code.
    """
    try:
        return _read_file(Path(path), light, budget or (None if light else Budget()))
    except BudgetSpentError as error:
        if budget is not None:
            raise
        return unread(Path(path))._replace(too_large=str(error))


def _read_file(path: Path, light: bool, budget: Budget | None) -> BinaryRecord:
    """Raises BudgetSpentError."""
    blank = unread(path)
    try:
        with Elf(path, budget) as elf:
            return _read(elf, blank, light)
    except OSError as error:
        return blank._replace(problems=(error.strerror or str(error),))
    except ElfBoundError as error:
        return blank._replace(too_large=str(error))
    except ValueError as error:  # an ElfError, or a path that no file can have
        what, platform = _other_format(path)
        if platform is not None:
            return blank._replace(kind="library", platform=platform)
        return blank._replace(problems=(f"{what} ({error})" if what else str(error),))


def needs_torch_or_cuda(binary: BinaryRecord) -> bool:
    """Whether the binary is glue, kernels or an extension of torch, or uses libcudart or cuBLAS."""
    cuda = any(name.startswith(("libcudart.so", "libcublas.so")) for name in binary.needed)
    return binary.kind in ("extension", "glue", "kernels") or cuda


_LINKER_SCRIPT = (b"/* GNU ld script", b"INPUT", b"GROUP")
#: Formats that cannot be loaded here: the first bytes, a description, and the platform.
_FORMATS: tuple[tuple[bytes | tuple[bytes, ...], str, str | None], ...] = (
    (b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01", "", "darwin-aarch64"),
    (b"\xcf\xfa\xed\xfe", "", "darwin-x86_64"),
    (b"\xca\xfe\xba\xbe", "", "darwin-universal"),
    (b"MZ", "", "windows-x86_64"),
    (b"\x7fELF\x01", "", "linux-32bit"),
    (b"\x7fELF\x02\x02", "", "linux-bigendian"),
    (
        b"version https://git-lfs",
        "a git-lfs pointer: the file itself was never fetched",
        None,
    ),
    (_LINKER_SCRIPT, "a linker script, which only a compiler reads", None),
    (b"!<arch>", "a static library, which only a compiler reads", None),
    (b"<", "a web page or XML", None),
)


def _other_format(path: Path) -> tuple[str, str | None]:
    """A description ("" if none) and the platform (or None) of a file that `Elf` cannot read."""
    start = b"\0"  # an unreadable file matches no format
    with suppress(OSError, ValueError):
        start = read_regular(path, 64)
    for magic, what, platform in _FORMATS:
        if start.startswith(magic):
            return what, platform
    if b"".join(start.split()).decode("ascii", "replace").isprintable():
        return ("a text file" if start else "an empty file"), None
    return "", None


def _read(elf: Elf, blank: BinaryRecord, light: bool) -> BinaryRecord:
    problems: list[str] = []
    record = layout = None
    try:
        if (raw := elf.section_bytes(RECORD_SECTION)) is not None:
            record = BuildRecord.parse(raw)
        if (raw := elf.section_bytes(LAYOUT_SECTION)) is not None:
            layout = _layout(raw, elf.section_bytes(VTABLE_SECTION))
    except RecordError as error:
        problems.append(str(error))
    strong, modules = _names(elf)
    torch_symbols = tuple(printable(name) for name in strong if is_torch_symbol(name))
    python_symbols = (name for name in strong if name.startswith((b"Py", b"_Py")))
    cuda_archs = record.cuda_archs if record else ()
    if not light:
        cuda_archs = _architectures(elf, record, problems)
    header = elf.header
    needs_torch = bool(torch_symbols) or any(map(is_torch_library, header.needed))
    kind, label = _kind(blank, record, problems, needs_torch=needs_torch)
    if header.is_program:
        problems.append("a program, not a shared library")
    flavours = _flavours(elf, torch_symbols)
    if len(flavours) > 1:
        problems.append("torch symbols of both C++ ABI flavours")
    return blank._replace(
        kind=kind,
        name=label,
        record=record,
        layout=layout,
        platform=f"linux-{header.processor}",
        header=header,
        needed=header.needed,
        runpath=header.runpath,
        floors=newest_versions(version for _, version in elf.version_needs()),
        torch_symbols=torch_symbols,
        python_symbols=tuple(map(printable, python_symbols)),
        modules=tuple(modules),
        cxx11_abi=min(flavours, default=None),
        cuda_archs=cuda_archs,
        size=elf.size,
        alignment=header.alignment,
        problems=tuple(problems),
    )


def _names(elf: Elf) -> tuple[list[bytes], list[str]]:
    """The strong undefined symbols, and the Python modules that are defined."""
    strong: list[bytes] = []
    modules: list[str] = []
    for name, is_defined, is_weak in elf.symbols():
        if is_defined and name.startswith(b"PyInit_"):
            modules.append(printable(name[7:]))
        elif not (is_defined or is_weak):
            strong.append(name)
    return strong, modules


def _architectures(elf: Elf, record: BuildRecord | None, problems: list[str]) -> tuple[str, ...]:
    """The architectures of the record or, without one, of the GPU code; adds to `problems`."""
    from . import fatbin  # an import of the package does not need it

    present = fatbin.architectures(elf)
    if record is None:
        return present
    absent = [arch for arch in record.cuda_archs if arch not in present]
    if absent:
        problems.append(f"its record names GPU code that is not in it: {' '.join(absent)}")
    # The record counts, since the file may hold more: nvcc's link step adds an empty stub for
    # its default architecture.
    return record.cuda_archs


def _kind(
    blank: BinaryRecord, record: BuildRecord | None, problems: list[str], *, needs_torch: bool
) -> tuple[str, str]:
    """The kind and the name of a binary, as in `BinaryRecord`; adds to `problems`."""
    by_file_name = parse_file_name(blank.path.name)
    if record is not None:
        label = record.name or blank.name
        if by_file_name is not None and str(by_file_name) != label:
            problems.append(f"the file is named {blank.name} but its record says {label}")
        return record.kind, label
    if by_file_name is not None:
        if not problems:
            problems.append(f"no build record ({RECORD_SECTION}): not built by this package")
        return ("glue" if isinstance(by_file_name, GlueName) else "kernels"), str(by_file_name)
    return ("extension" if needs_torch else "library"), blank.name


def newest_versions(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The newest version of each family: `{"GLIBC": (2, 34)}` of `GLIBC_2.17` and `GLIBC_2.34`."""
    newest: dict[str, tuple[int, ...]] = {}
    for name in names:
        family, _, number = name.partition("_")
        if family not in ("GLIBC", "GLIBCXX", "CXXABI"):
            continue
        # Every import of a package reads some fifty of libstdc++, so no pattern is matched here.
        parts = number.split(".")
        is_plain = len(parts) < 5 and all(part.isdecimal() and len(part) < 10 for part in parts)
        version = tuple(map(int, parts)) if is_plain else parse_version(number)
        if version:
            newest[family] = max(version, newest.get(family, ()))
    return newest


def _flavours(elf: Elf, symbols: tuple[str, ...]) -> set[int]:
    """The C++ ABI flavours of the symbols."""
    flavours = set()
    for name in symbols:
        elf.spend()
        flavour = symbol_flavour(name)
        if flavour is not None:
            flavours.add(flavour)
    return flavours


def _layout(raw: bytes, slots: bytes | None) -> dict[str, int]:
    """The layout fingerprint from its two sections. `slots` holds two numbers for each
    virtual function, 1 + 8 * slot and 0. Raises RecordError."""
    try:
        data = json.loads(raw.rstrip(b"\0").decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RecordError(f"the layout fingerprint is not JSON ({error})") from None
    if not isinstance(data, dict) or not all(type(value) is int for value in data.values()):
        raise RecordError("the layout fingerprint is not an object of integers")
    layout = {printable(name): value for name, value in data.items()}
    if slots is not None:
        if len(slots) != 16 * len(SLOTS):
            raise RecordError(f"{VTABLE_SECTION} has {len(slots)} bytes, not {16 * len(SLOTS)}")
        numbers = struct.unpack(f"<{2 * len(SLOTS)}q", slots)[::2]
        layout |= {n: (number - 1) // 8 for n, number in zip(SLOTS, numbers, strict=True)}
    return layout
