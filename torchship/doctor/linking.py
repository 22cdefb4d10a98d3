"""Probe: the libraries (indirect ones, too) and symbols that the dynamic linker would not find."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from .binary import is_torch_library
from .elf import Elf, ElfError
from .project import Record
from .records import BinaryRecord, TorchInstall
from .runtime_probe import library_folders
from .text import printable

_LOADER_CACHE = Path("/etc/ld.so.cache")
_MAX_CACHE = 8 << 20
_MAX_LIBRARIES = 1000
_MAX_FOLDERS = 32  # each folder is searched for every needed library
_MAX_RODATA = 64 << 20
_MAX_SYMBOLS = 100_000
#: GCC's headers name this symbol without using it, so the dynamic linker never looks for it.
_UNUSED = b"_ZSt21ios_base_library_initv"
#: `import torch` loads these and what they need, from a folder that the linker does not search.
_ROOTS = ("libtorch_global_deps.so", "libtorch_python.so", "libtorch_cpu.so", "libc10.so")

# Not os.access, on which qemu's option `-L` (a folder of the platform's files) has no effect.
_exists = os.path.exists


class _Head(Record):
    needed: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    inherited: bool = False  # DT_RPATH also holds for indirect libraries, DT_RUNPATH does not
    soname: str = ""


def link(
    binary: BinaryRecord,
    torch: TorchInstall | None,
    siblings: Mapping[str, Path],
    above: Path | None,
) -> tuple[tuple[str, ...], tuple[str, ...], list[Path]]:
    """Look up what the dynamic linker would look up to load a binary after `import torch`.

    `torch` is None if only Python's own libraries are loaded. `siblings` are the libraries of the
    binary's package, by file name; its code may load them first. `above` is the opened object that
    needs `binary`, or None; its libraries may provide symbols. The result: the needed libraries
    that were not found, indirect ones included; the strong undefined symbols that no library
    defines, empty if a library was not found; the siblings that load with it and need torch.
    """
    process = _process(torch.lib_dir if torch else None)
    found, missing = _closure([binary.path], process, siblings)
    own = {path.resolve() for path in siblings.values()}
    package = [path for path in found[1:] if path.resolve() in own]
    beside = [path for path in package if any(map(is_torch_library, _head(path).needed))]
    if missing:
        return tuple(missing), (), beside
    higher = [] if above is None else _closure([above], process, siblings)[0]
    # The libraries that torch loads into the global scope: the CUDA libraries and others.
    root = process.get(_ROOTS[0])
    everybodys = _closure([root], process, {})[0] if root else []
    scope = dict.fromkeys([*found, *higher, *_process(None).values(), *everybodys])
    return (), _unresolved(binary.path, scope), beside


def absent_imports(binary: BinaryRecord, torch: TorchInstall | None) -> tuple[str, ...]:
    """`("import numpy",)` if loading the module imports NumPy, which was not found; else ()."""
    places = [*binary.path.absolute().parents, *map(Path, filter(None, sys.path))]
    places += [torch.root.parent] if torch else []
    with suppress(ElfError, OSError), Elf(binary.path) as elf:
        start, size = (binary.modules and elf.section(".rodata")) or (0, 0)
        if b"multiarray failed to import" in elf.read(start, min(size, _MAX_RODATA)) and not any(
            os.access(place / "numpy" / "__init__.py", os.F_OK) for place in places
        ):
            return ("import numpy",)
    return ()


def missing_libraries(binary: BinaryRecord, torch: TorchInstall | None) -> tuple[str, ...]:
    """The libraries that the binary needs, directly or not, and that the linker would not find."""
    return tuple(_closure([binary.path], _process(torch.lib_dir if torch else None), {})[1])


@cache
def _process(torch_libraries: Path | None) -> Mapping[str, Path]:
    """The libraries of a process with this folder's torch (or none), by file name and SONAME."""
    python = [Path(sys.executable)]
    if torch_libraries is not None:
        python += [torch_libraries / name for name in _ROOTS if (torch_libraries / name).exists()]
        python += _preloaded(torch_libraries)
    known: dict[str, Path] = {}
    for path in _closure(python, {}, {})[0]:
        known.setdefault(path.name, path)
        known.setdefault(_head(path).soname, path)
    return known


def _preloaded(torch_libraries: Path) -> Iterator[Path]:
    """The libraries of NVIDIA's wheels that `import torch` loads, up to the first missing one."""
    site, text = torch_libraries.parents[1], ""
    with suppress(OSError):
        if (torch_libraries / "libtorch_cuda.so").exists():
            text = (torch_libraries.parent / "__init__.py").read_text("utf-8", "replace")
            # Drop the `except` block, which repeats these libraries and runs only after a failure.
            text = text[: text.find("except OSError as err", text.find("def _load_global_deps"))]
    for folder, name in re.findall(r'\("(\w+)", "(lib\w+(?:-\w+)?\.so\.\*\[0-9\])"', text):
        places = (f"nvidia/{folder}", "nvidia/cu[0-9]*", folder)
        found = [p for place in places for p in sorted(site.glob(f"{place}/lib/{name}"))]
        if not found:
            return
        yield found[0]


@cache
def _head(path: Path) -> _Head:
    """The facts that the linker reads in a file; empty if the file cannot be read."""
    with suppress(ElfError, OSError), Elf(path) as elf:
        origin = str(path.parent.resolve())
        texts = elf.runpath.replace("${ORIGIN}", origin).replace("$ORIGIN", origin).split(":")
        folders = tuple(Path(text) for text in texts[:_MAX_FOLDERS] if text)
        return _Head(elf.needed, folders, not elf.has_runpath, elf.soname)
    return _Head()


def _closure(
    roots: Iterable[Path], process: Mapping[str, Path], siblings: Mapping[str, Path]
) -> tuple[list[Path], list[str]]:
    """The roots and all libraries that they need, nearest first; and the names of the needed
    libraries that were not found."""
    names: dict[str, Path | None] = {}
    queue: list[tuple[Path, tuple[Path, ...]]] = [(path, ()) for path in roots]
    for path, above in queue:  # the loop appends to the queue
        head = _head(path)
        if len(queue) > _MAX_LIBRARIES:
            continue
        folders = (*head.folders, *(above if head.inherited else ()))
        for name in head.needed:
            if name in names:
                continue
            names[name] = place = process.get(name) or _search(name, folders) or siblings.get(name)
            if place is not None:
                queue.append((place, folders if head.inherited else ()))
    return list(dict.fromkeys(path for path, _ in queue)), [n for n, p in names.items() if not p]


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
    found: dict[str, Path] = {}
    with suppress(OSError), _LOADER_CACHE.open("rb") as file:
        for text in file.read(_MAX_CACHE).split(b"\0"):
            if text.startswith(b"/"):
                path = Path(os.fsdecode(text))
                found.setdefault(path.name, path)
    return found


def _unresolved(path: Path, scope: Iterable[Path]) -> tuple[str, ...]:
    """The undefined strong symbols of the file that no library of the scope defines."""
    left: list[bytes] = []
    with suppress(ElfError, OSError):
        with Elf(path) as elf:
            for name, defined, weak in elf.symbols():
                if not (defined or weak) and name != _UNUSED and len(left) < _MAX_SYMBOLS:
                    left.append(name)
        for library in scope:
            if not left:
                break
            with suppress(ElfError, OSError), Elf(library) as elf:
                left = [name for name in left if not elf.defines(name)]
    return tuple(map(printable, left))
