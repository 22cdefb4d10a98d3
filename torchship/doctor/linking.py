"""Probe: the libraries and symbols that the dynamic linker would not find."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from . import interpreter
from .binary import is_torch_library
from .budget import Budget
from .elf import Elf, ElfError
from .project import Record
from .records import BinaryRecord, TorchInstall
from .runtime_probe import library_folders
from .text import printable, read_regular

_LOADER_CACHE = Path("/etc/ld.so.cache")
_MAX_CACHE = 8 << 20
_MAX_LIBRARIES = 1000
_MAX_FOLDERS = 32  # each folder is searched for every needed library
_MAX_RODATA = 64 << 20
_MAX_SYMBOLS = 100_000
_MAX_INIT_FILE = 1 << 20
_MAX_PROCESS_LOOKUPS = 100_000
#: What it costs to read a file, and its names, in lookups.
_LOOKUPS_PER_FILE = 20
_NAME_PER_LOOKUP = 500
#: GCC's headers name this symbol without using it, so the dynamic linker never looks for it.
_UNUSED = b"_ZSt21ios_base_library_initv"
#: `import torch` loads these and what they need, from a folder that the linker does not search.
_ROOTS = ("libtorch_global_deps.so", "libtorch_python.so", "libtorch_cpu.so", "libc10.so")

# Not os.access, on which qemu's option `-L` (a folder of the platform's files) has no effect.
_exists = os.path.exists


class _Head(Record):
    """The facts that the dynamic linker reads in a file."""

    needed: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    inherited: bool = False  # DT_RPATH also holds for indirect libraries, DT_RUNPATH does not
    soname: str = ""


class Closure(Record):
    """Files with all the libraries that they need, nearest first, and what was not found."""

    files: list[Path]
    missing: list[str]


class Links(Record, kw_only=True):
    """What the dynamic linker would find and miss for one object."""

    #: The needed libraries that were not found, indirect ones included.
    missing_libraries: tuple[str, ...]
    #: The strong undefined symbols that no library defines; empty if a library was not found.
    missing_symbols: tuple[str, ...]
    siblings: list[Path]  #: the libraries of the same package that load with it and need torch


def link(
    binary: BinaryRecord,
    torch: TorchInstall | None,
    opened: Path | None,
    budget: Budget,
) -> Links:
    """Look up what the dynamic linker would look up to load a binary after `import torch`.

    `torch` is None if only Python's own libraries are loaded. The package of the binary may
    load its other libraries first. `opened` is the object that needs `binary`, or None; its
    libraries may provide symbols. Raises BudgetSpentError.
    """
    process = _process(torch.lib_dir if torch else None)
    libraries = binary.owner.libraries if binary.owner else {}
    closure = _close([binary.path], process, libraries, budget)
    siblings = [
        path
        for path in closure.files[1:]
        if _is_among(path, libraries) and any(map(is_torch_library, _head(path).needed))
    ]
    if closure.missing:
        return Links(
            missing_libraries=tuple(closure.missing), missing_symbols=(), siblings=siblings
        )
    scope = list(closure.files)
    if opened is not None:
        scope += _close([opened], process, libraries, budget).files
    scope += _process(None).values()
    scope += _global_libraries(torch.lib_dir) if torch else []
    unresolved = _unresolved(binary.path, dict.fromkeys(scope), budget)
    return Links(missing_libraries=(), missing_symbols=unresolved, siblings=siblings)


def _is_among(path: Path, libraries: Mapping[str, Path]) -> bool:
    """Whether a file, or the target of a link, is one of a package's libraries."""
    target = path.resolve()
    named_alike = (libraries.get(name) for name in {path.name, target.name})
    return any(library is not None and library.resolve() == target for library in named_alike)


def absent_imports(binary: BinaryRecord, torch: TorchInstall | None) -> tuple[str, ...]:
    """`("import numpy",)` if loading the module imports NumPy, which was not found; else ()."""
    places = [*binary.path.absolute().parents, *map(Path, filter(None, interpreter.search_path()))]
    places += [torch.root.parent] if torch else []
    with suppress(ElfError, OSError), Elf(binary.path) as elf:
        start, size = (binary.modules and elf.section(".rodata")) or (0, 0)
        if b"multiarray failed to import" in elf.read(start, min(size, _MAX_RODATA)) and not any(
            os.access(place / "numpy" / "__init__.py", os.F_OK) for place in places
        ):
            return ("import numpy",)
    return ()


def missing_libraries(
    binary: BinaryRecord, torch: TorchInstall | None, budget: Budget | None = None
) -> tuple[str, ...]:
    """The libraries that the binary needs, directly or not, and that the linker would not find.

    Raises BudgetSpentError.
    """
    process = _process(torch.lib_dir if torch else None)
    budget = budget or Budget.for_file(binary.size)
    return tuple(_close([binary.path], process, {}, budget).missing)


@cache
def _process(torch_libraries: Path | None) -> Mapping[str, Path]:
    """The libraries of a process with this folder's torch (or none), by file name and SONAME."""
    roots = [Path(interpreter.executable())]
    if torch_libraries is not None:
        roots += [torch_libraries / name for name in _ROOTS if _exists(torch_libraries / name)]
        roots += _preloaded(torch_libraries)
    library_of: dict[str, Path] = {}
    # This is read once in a process, and belongs to no single file's budget.
    for path in _close(roots, {}, {}, Budget(_MAX_PROCESS_LOOKUPS)).files:
        library_of.setdefault(path.name, path)
        library_of.setdefault(_head(path).soname, path)
    return library_of


@cache
def _global_libraries(torch_libraries: Path) -> tuple[Path, ...]:
    """What torch loads into the global scope: the CUDA libraries and others."""
    process = _process(torch_libraries)
    root = process.get(_ROOTS[0])
    roots = [root] if root else []
    return tuple(_close(roots, process, {}, Budget(_MAX_PROCESS_LOOKUPS)).files)


def _preloaded(torch_libraries: Path) -> Iterator[Path]:
    """The libraries of NVIDIA's wheels that `import torch` loads, up to the first missing one."""
    site = torch_libraries.parents[1]
    source = ""
    with suppress(OSError):
        if _exists(torch_libraries / "libtorch_cuda.so"):
            init = read_regular(torch_libraries.parent / "__init__.py", _MAX_INIT_FILE)
            source = init.decode("utf-8", "replace")
            # Drop the `except` block, which repeats these libraries and runs only after a failure.
            start = source.find("def _load_global_deps")
            source = source[: source.find("except OSError as err", start)]
    for folder, name in re.findall(r'\("(\w+)", "(lib\w+(?:-\w+)?\.so\.\*\[0-9\])"', source):
        places = (f"nvidia/{folder}", "nvidia/cu[0-9]*", folder)
        libraries = [p for place in places for p in sorted(site.glob(f"{place}/lib/{name}"))]
        if not libraries:
            return
        yield libraries[0]


@cache
def _head(path: Path) -> _Head:
    """The facts that the linker reads in a file; empty if the file cannot be read."""
    with suppress(ElfError, OSError), Elf(path) as elf:
        origin = str(path.parent.resolve())
        runpath = elf.runpath.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        folders = tuple(Path(entry) for entry in runpath.split(":")[:_MAX_FOLDERS] if entry)
        return _Head(
            needed=elf.needed,
            folders=folders,
            inherited=not elf.has_runpath,
            soname=elf.soname,
        )
    return _Head()


def _close(
    roots: Iterable[Path],
    process: Mapping[str, Path],
    siblings: Mapping[str, Path],
    budget: Budget,
) -> Closure:
    """The roots and all libraries that they need. Raises BudgetSpentError."""
    place_of: dict[str, Path | None] = {}
    process_files = set(process.values())
    queue: list[tuple[Path, tuple[Path, ...]]] = [(path, ()) for path in roots]
    for path, above in queue:  # the loop appends to the queue
        head = _head(path)
        if path not in process_files:
            # What has been read once is remembered, but a file may be hostile in this alone.
            budget.spend(_LOOKUPS_PER_FILE + sum(map(len, head.needed)) // _NAME_PER_LOOKUP)
        if len(queue) > _MAX_LIBRARIES:
            continue
        folders = (*head.folders, *(above if head.inherited else ()))
        for name in head.needed:
            if name in place_of:
                continue
            place = process.get(name)
            if place is None:
                budget.spend(1 + len(folders))
                place = _search(name, folders) or siblings.get(name)
            place_of[name] = place
            if place is not None:
                queue.append((place, folders if head.inherited else ()))
    return Closure(
        files=list(dict.fromkeys(path for path, _ in queue)),
        missing=[name for name, place in place_of.items() if not place],
    )


def _search(name: str, folders: Iterable[Path]) -> Path | None:
    if "/" in name:
        return Path(name) if _exists(name) else None
    return next((f / name for f in folders if _exists(f / name)), None) or _system(name)


@cache
def _system(name: str) -> Path | None:
    """The path of a library in `library_folders()` or the cache of `ldconfig`, else None."""
    places = [*(folder / name for folder in library_folders()), _cached().get(name)]
    return next((place for place in places if place and _exists(place)), None)


@cache
def _cached() -> Mapping[str, Path]:
    """The paths of the libraries in the cache of `ldconfig`, by file name."""
    path_of: dict[str, Path] = {}
    with suppress(OSError):
        for entry in read_regular(_LOADER_CACHE, _MAX_CACHE).split(b"\0"):
            if entry.startswith(b"/"):
                path = Path(os.fsdecode(entry))
                path_of.setdefault(path.name, path)
    return path_of


def _unresolved(path: Path, scope: Iterable[Path], budget: Budget) -> tuple[str, ...]:
    """The undefined strong symbols of the file that no library of the scope defines."""
    left: list[bytes] = []
    with suppress(ElfError, OSError):
        with Elf(path) as elf:
            left = undefined(elf)
        for library in scope:
            if not left:
                break
            with suppress(ElfError, OSError), Elf(library) as elf:
                left = [name for name in left if not elf.defines(name, budget)]
    return tuple(map(printable, left))


def undefined(elf: Elf) -> list[bytes]:
    """The strong undefined symbols of a file, each once."""
    names: dict[bytes, None] = {}
    for name, is_defined, is_weak in elf.symbols():
        if not (is_defined or is_weak) and name != _UNUSED and len(names) < _MAX_SYMBOLS:
            names[name] = None
    return list(names)
