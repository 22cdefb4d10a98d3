"""Probe: read one shared object into a `BinaryRecord`, without loading it."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from .elf import Elf, ElfError
from .layouts import SLOTS
from .records import (
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

# at::, c10::, torch:: and caffe2:: (which lives in libc10), as functions, members, type
# information, virtual tables, guards and thunks; and the C shim of the stable ABI.
_TORCH_CXX = re.compile(
    rb"_Z(?:T[ISVTC]|GV|GR|Th?n?[0-9]*_?)*(?:N[rVK]*[RO]?)?(?:2at|3c10|5torch|6caffe2)"
)
_TORCH_C = re.compile(rb"(?:aoti_torch|torch)_[a-z0-9_]+|THP[A-Za-z0-9_]+")
_PYTHON = re.compile(rb"_?Py[A-Z_][A-Za-z0-9_]*")
_LITERAL = re.compile(r"L[a-z]n?[0-9]+E")
_NUMBER = re.compile(r"[0-9]+")
_FLOOR = re.compile(r"(GLIBCXX|GLIBC|CXXABI)_([0-9.]+)")


def is_torch_symbol(name: bytes) -> bool:
    """Whether an undefined symbol is one that torch's libraries must provide."""
    return bool(_TORCH_CXX.match(name) or _TORCH_C.fullmatch(name))


def symbol_flavour(name: str) -> int | None:
    """The C++11 ABI flavour that a mangled name speaks: 1, 0, or None when it holds no string.

    `std::__cxx11` can only come from flavour 1; the substitution `Ss` (the old `std::string`) only
    from flavour 0. Identifiers are skipped by their lengths, so `DispatchKeySset` is no `Ss`.
    """
    if not name.startswith("_Z"):
        return None
    if "7__cxx11" in name:
        return 1
    text = _LITERAL.sub("", name)
    at = 2
    while at < len(text):
        number = _NUMBER.match(text, at)
        if number is not None:
            at = number.end() + (int(number[0]) if len(number[0]) < 6 else len(text))
        elif text.startswith("Ss", at):
            return 0
        else:
            at += 1
    return None


def read_binary(path: str | Path, *, light: bool = False) -> BinaryRecord:
    """Read a shared object.

    Args:
        path: the file.
        light: only what `import lltm_conda` needs of the package's own files (no GPU code walk: the
            build record says the architectures).

    Returns:
        The record. A file that cannot be read or is malformed gives kind "unreadable" and says why
        in `problems`; nothing is raised.
    """
    path = Path(path)
    blank = BinaryRecord(path=path, kind="unreadable", name=path.name)
    try:
        with Elf(path) as elf:
            return _read(elf, blank, light)
    except ElfError as error:
        return blank._replace(size=_size(path), problems=(str(error),))
    except OSError as error:
        return blank._replace(problems=(error.strerror or str(error),))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(elf: Elf, blank: BinaryRecord, light: bool) -> BinaryRecord:
    problems: list[str] = []
    record = layout = None
    try:
        raw = elf.section_bytes(RECORD_SECTION)
        if raw is not None:
            record = BuildRecord.parse(raw)
        raw = elf.section_bytes(LAYOUT_SECTION)
        if raw is not None:
            layout = _layout(raw) | _slots(elf.section_bytes(VTABLE_SECTION))
    except RecordError as error:
        problems.append(str(error))
    floors: dict[str, tuple[int, ...]] = {}
    for _, version in elf.version_needs():
        match = _FLOOR.fullmatch(version)
        numbers = parse_version(match[2]) if match else None
        if match and numbers and numbers > floors.get(match[1], ()):
            floors[match[1]] = numbers
    torch_symbols: list[str] = []
    python_symbols: list[str] = []
    modules: list[str] = []
    for name, defined, weak in elf.symbols():
        if defined:
            if name.startswith(b"PyInit_"):
                modules.append(name[7:].decode("utf-8", "backslashreplace"))
        elif not weak:
            if is_torch_symbol(name):
                torch_symbols.append(name.decode("utf-8", "backslashreplace"))
            elif _PYTHON.fullmatch(name):
                python_symbols.append(name.decode("utf-8", "backslashreplace"))
    cuda_archs = record.cuda_archs if record else ()
    if not light:
        from . import fatbin  # an ordinary import of the package believes the record

        found_archs = fatbin.architectures(elf)
        absent = [arch for arch in cuda_archs if arch not in found_archs]
        if absent:
            problems.append(f"its record names GPU code that is not in it: {' '.join(absent)}")
        # Not the other way round: nvcc's link step adds an empty stub for its default architecture.
        cuda_archs = cuda_archs if record else found_archs
    named = parse_file_name(blank.path.name)
    if record is not None:
        kind, label = record.kind, record.name
        if named is not None and (str(named) != label):
            problems.append(f"the file is named {blank.path.name} but its record says {label}")
    elif named is not None:
        kind, label = ("glue" if isinstance(named, GlueName) else "kernels"), str(named)
        if not problems:
            problems.append(
                f"no build record (section {RECORD_SECTION}): not built by this package"
            )
    else:
        needs_torch = any(lib.startswith(("libtorch", "libc10")) for lib in elf.needed)
        is_extension = torch_symbols or needs_torch or modules
        kind, label = ("extension" if is_extension else "library"), blank.name
    found = (symbol_flavour(name) for name in torch_symbols)
    flavours = {flavour for flavour in found if flavour is not None}
    if len(flavours) > 1:
        problems.append("torch symbols of both C++ ABI flavours")
    return blank._replace(
        kind=kind,
        name=label,
        record=record,
        layout=layout,
        platform=f"linux-{elf.machine}",
        needed=elf.needed,
        runpath=elf.runpath,
        floors=floors,
        torch_symbols=tuple(torch_symbols),
        python_symbols=tuple(python_symbols),
        modules=tuple(modules),
        cxx11_abi=min(flavours, default=None),
        cuda_archs=cuda_archs,
        size=elf.size,
        problems=tuple(problems),
    )


def _slots(raw: bytes | None) -> dict[str, int]:
    """The slots of virtual functions from pointers to them: (1 + 8 * slot, 0) each."""
    if raw is None:
        return {}
    if len(raw) != 16 * len(SLOTS):
        raise RecordError(f"{VTABLE_SECTION} has {len(raw)} bytes, not {16 * len(SLOTS)}")
    numbers = struct.unpack(f"<{2 * len(SLOTS)}q", raw)[::2]
    return {name: (number - 1) // 8 for name, number in zip(SLOTS, numbers, strict=True)}


def _layout(raw: bytes) -> dict[str, int]:
    try:
        data = json.loads(raw.rstrip(b"\0").decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RecordError(f"the layout fingerprint is not JSON ({error})") from None
    if not isinstance(data, dict) or not all(type(value) is int for value in data.values()):
        raise RecordError("the layout fingerprint is not an object of integers")
    return data
