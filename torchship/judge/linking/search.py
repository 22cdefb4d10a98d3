"""The rules by which the dynamic linker finds a library, and the facts that it reads in a file.

For a library that an object needs by its bare name, glibc looks in this order:

1. the libraries that are loaded already, by the names that they were asked for and by SONAME;
2. the DT_RPATH of the object, of what loaded it, and so on up to the program: only if the object
   has no DT_RUNPATH;
3. the folders in LD_LIBRARY_PATH;
4. the DT_RUNPATH of the object alone;
5. the cache of `ldconfig`, and the system's folders.

In each folder it looks first in the subfolders for this processor (glibc.py).
A file for another machine is passed over. A file that is no shared object at all ends the search:
the load fails.
"""

import errno
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..budget import BudgetSpentError
from ..machine.system import libc, system_folders
from ..machine.system import machine as name_of_machine
from ..project import Record
from ..reading.elf import (
    MACHINES,
    MAGIC,
    Elf,
    ElfBoundError,
    ElfError,
    ElfSectionError,
    Header,
    VersionNeed,
    header_fault,
)
from ..target import Target, once
from ..text import printable, read_regular
from .glibc import LinkerFacts, facts_of, has_subfolders, is_in_subfolder

_LOADER_CACHE = Path("/etc/ld.so.cache")
_PRELOAD_FILE = Path("/etc/ld.so.preload")
_ELF_HEADER = 64
_ELFCLASS64 = 2
_TYPE_AT, _MACHINE_AT = 16, 18
_ET_EXEC, _ET_DYN = 2, 3


class Head(Record, kw_only=True):
    """What the dynamic linker takes from a file; all is empty if it cannot be read."""

    header: Header = Header()
    needed: tuple[str, ...] = ()  #: those of the header, with its folder for `$ORIGIN`
    rpath: tuple[Path, ...] = ()
    runpath: tuple[Path, ...] = ()
    versions: tuple[VersionNeed, ...] = ()
    refusal: str = ""  #: why the linker refuses the file as a library; "" if not


class Settings(Record, kw_only=True):
    """What the environment tells the dynamic linker."""

    library_path: tuple[Path, ...] = ()  #: LD_LIBRARY_PATH
    preloads: tuple[str, ...] = ()  #: LD_PRELOAD and /etc/ld.so.preload: names and paths
    #: Whether `import torch` loads its libraries into the global scope (TORCH_USE_RTLD_GLOBAL).
    shares_torch: bool = False
    static_tls: int = 0  #: the bytes for libraries that are loaded later; 0 if unknown
    program: Path | None = None  #: what runs, with its dynamic linker; None before it is known
    interpreter: str = ""  #: the dynamic linker of the program

    def ask_linker(self, target: Target) -> LinkerFacts:
        """What the program's dynamic linker says of itself."""
        if self.program is None or not self.interpreter:
            return LinkerFacts()
        return facts_of(target, self.interpreter, self.program)


class Place(Record, kw_only=True):
    """Where the search for a library ended."""

    path: Path | None = None
    refusal: str = ""  #: why the dynamic linker refuses the file that it found; "" if it does not
    by_library_path: bool = False  #: whether LD_LIBRARY_PATH names its folder


NOT_FOUND = Place()


def settings_here(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings in this process's environment, which its children inherit."""
    preloads = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    with suppress(OSError):
        lines = read_regular(_PRELOAD_FILE).splitlines()
        preloads += [os.fsdecode(name) for line in lines for name in line.split(b"#")[0].split()]
    return Settings(
        library_path=_folders(environment.get("LD_LIBRARY_PATH", ""), origin=None),
        preloads=tuple(preloads),
        shares_torch=bool(environment.get("TORCH_USE_RTLD_GLOBAL")),
        static_tls=_static_tls_surplus(environment.get("GLIBC_TUNABLES", "")),
    )


def _static_tls_surplus(tunables: str) -> int:
    """The bytes of static thread-local storage that glibc keeps for libraries loaded later.

    Four namespaces have 144 bytes each, three of them 160 for a libc of their own; the tunable
    `optional_static_tls` adds 512 unless it says otherwise.
    """
    optional = re.search(r"glibc\.rtld\.optional_static_tls=(0x[0-9a-fA-F]+|\d+)", tunables)
    namespaces = re.search(r"glibc\.rtld\.nns=(0x[0-9a-fA-F]+|\d+)", tunables)
    count = int(namespaces[1], 0) if namespaces else 4
    return (count - 1) * 160 + count * 144 + (int(optional[1], 0) if optional else 512)


def _folders(joined: str, origin: Path | None) -> tuple[Path, ...]:
    """The folders of LD_LIBRARY_PATH or of an RPATH; an empty entry is the working folder."""
    if not joined:
        return ()
    entries = re.split("[:;]" if origin is None else ":", joined)
    if origin is not None:
        entries = [_with_token(entry, "ORIGIN", str(origin)) for entry in entries]
    return tuple(Path(entry or ".") for entry in dict.fromkeys(entries))


def _with_token(entry: str, token: str, value: str) -> str:
    """An entry with a value in the place of `$TOKEN` and `${TOKEN}`."""
    if "$" not in entry:
        return entry
    # A function, since a value may hold backslashes.
    return re.sub(rf"\$(?:\{{{token}\}}|{token}(?!\w))", lambda _: value, entry)


def _expanded(target: Target, folder: Path, settings: Settings) -> Path | None:
    """A folder without tokens; None if a token has no value: the linker drops such a folder."""
    entry = str(folder)
    if "$" not in entry:
        return folder
    origin = str(settings.program.parent) if settings.program else ""
    facts = settings.ask_linker(target)
    for token, value in (("LIB", facts.lib), ("PLATFORM", facts.platform), ("ORIGIN", origin)):
        expanded = _with_token(entry, token, value)
        if expanded != entry and not value:
            return None
        entry = expanded
    return Path(entry)


def _searched(target: Target, folder: Path, settings: Settings) -> tuple[Path, ...]:
    """The folders that the linker searches for one entry of a path."""
    place = _expanded(target, folder, settings)
    if place is None or not is_folder(target, place):
        return ()
    if not has_subfolders(target, place):
        return (place,)
    return (*(place / name for name in settings.ask_linker(target).subfolders), place)


@once
def head_of(target: Target, path: Path) -> Head:
    """The facts that the linker reads in a file. Raises BudgetSpentError."""
    try:
        return _read_head(target, path)
    except ElfBoundError as error:
        raise BudgetSpentError(f"{printable(path.name)}: {error}") from None
    except (ElfSectionError, OSError):
        return Head()
    except ElfError as error:
        return Head(refusal=str(error))


def _read_head(target: Target, path: Path) -> Head:
    """Raises ElfError, OSError and BudgetSpentError."""
    with Elf(path, target.budget) as elf:
        header = elf.header
        origin = path.parent.resolve()
        folders = _folders(header.runpath, origin)
        return Head(
            header=header,
            needed=tuple(_with_token(name, "ORIGIN", str(origin)) for name in header.needed),
            rpath=() if header.has_runpath else folders,
            runpath=folders if header.has_runpath else (),
            versions=elf.versions_of_libraries,
            refusal="cannot dynamically load executable" if header.is_program else "",
        )


def machine_number() -> int:
    """The number of this machine in ELF headers; 0 for one that the doctor does not know."""
    return next((number for number, name in MACHINES.items() if name == name_of_machine()), 0)


@once
def is_folder(_: Target, path: Path) -> bool:
    """Whether a folder exists; the linker looks into no other one."""
    return os.path.isdir(path)  # noqa: PTH112  # Path.is_dir raises in a closed folder


@once
def version_names(target: Target, path: Path) -> frozenset[str]:
    """The symbol versions that a library defines; empty if it defines none or is unreadable."""
    with suppress(ElfError, OSError), Elf(path, target.budget) as elf:
        return frozenset(elf.version_definitions())
    return frozenset()


@once
def identity(_: Target, path: Path) -> tuple[int, int] | None:
    """The device and the number of a file, by which the linker knows a file that is loaded."""
    with suppress(OSError, ValueError):
        # Not os.access, on which qemu's option `-L` (a folder of the platform's files) has no
        # effect.
        status = os.stat(path)  # noqa: PTH116  # quicker than Path.stat
        return status.st_dev, status.st_ino
    return None


def search(
    target: Target,
    name: str,
    head: Head,
    *,
    above: tuple[Path, ...],
    settings: Settings,
    machine: int,
) -> Place:
    """Where the dynamic linker finds a library that an object with this head needs. Raises
    BudgetSpentError.

    `above` are the DT_RPATHs of what loaded the object; `machine` is the number of the program's
    machine in its ELF header.
    """
    if "/" in name:
        return _look_at(target, Path(name), machine, is_named=True)
    by_rpath = () if head.header.has_runpath else (*head.rpath, *above)
    for folders, by_library_path in (
        (by_rpath, False),
        (settings.library_path, True),
        (head.runpath, False),
    ):
        for entry in folders:
            for folder in _searched(target, entry, settings):
                place = _look_at(target, folder / name, machine)
                if place is not NOT_FOUND:
                    return place._replace(by_library_path=by_library_path)
    if not head.header.searches_default_folders:
        return NOT_FOUND
    return _of_the_system(
        target, name, machine, program=settings.program, interpreter=settings.interpreter
    )


@once
def _of_the_system(
    target: Target, name: str, machine: int, *, program: Path | None, interpreter: str
) -> Place:
    """A library in the cache of `ldconfig` or in the system's folders."""
    settings = Settings(program=program, interpreter=interpreter)
    cached = _best_first(target, _cached(target).get(name, ()), settings)
    folders = (
        place for folder in system_folders() for place in _searched(target, folder, settings)
    )
    candidates = (*cached, *(folder / name for folder in folders))
    places = (_look_at(target, path, machine) for path in candidates)
    return next((place for place in places if place is not NOT_FOUND), NOT_FOUND)


def _best_first(target: Target, paths: tuple[Path, ...], settings: Settings) -> list[Path]:
    """The paths of one library in the cache: those for this processor, then those for any."""
    if not any(map(is_in_subfolder, paths)):
        return list(paths)
    ends = [f"/{name}" for name in settings.ask_linker(target).subfolders]
    of_processor = [p for end in ends for p in paths if str(p.parent).endswith(end)]
    return [*of_processor, *(path for path in paths if not is_in_subfolder(path))]


@once
def _look_at(target: Target, path: Path, machine: int, *, is_named: bool = False) -> Place:
    """What the linker makes of a file in a folder that it searches, or of a file named by its
    path."""
    target.budget.spend()
    if identity(target, path) is None:
        return NOT_FOUND
    try:
        header = read_regular(path, _ELF_HEADER)
    except OSError as error:
        is_unusable = error.errno == errno.EINVAL
        return Place(path=path, refusal="no regular file") if is_unusable else NOT_FOUND
    if len(header) < _ELF_HEADER:
        return Place(path=path, refusal="file too short")
    if not header.startswith(MAGIC):
        return Place(path=path, refusal="invalid ELF header")
    other_machine = Place(path=path, refusal="for another machine") if is_named else NOT_FOUND
    if header[len(MAGIC)] != _ELFCLASS64:
        return other_machine
    if fault := header_fault(header):
        return Place(path=path, refusal=fault)
    if struct.unpack_from("<H", header, _MACHINE_AT)[0] != machine:
        return other_machine
    if struct.unpack_from("<H", header, _TYPE_AT)[0] not in (_ET_EXEC, _ET_DYN):
        return Place(path=path, refusal="only ET_DYN and ET_EXEC can be loaded")
    return Place(path=path)


@once
def _cached(target: Target) -> Mapping[str, tuple[Path, ...]]:
    """The paths of the libraries in the cache of `ldconfig`, by file name."""
    paths: dict[str, tuple[Path, ...]] = {}
    if libc() is None or libc()[0] != "glibc":  # type: ignore[index]
        return paths
    with suppress(OSError):
        for entry in read_regular(_LOADER_CACHE, budget=target.budget).split(b"\0"):
            if entry.startswith(b"/"):
                path = Path(os.fsdecode(entry))
                paths[path.name] = (*paths.get(path.name, ()), path)
    return paths


def preloaded_paths(target: Target, settings: Settings, head: Head, machine: int) -> Iterator[Path]:
    """The files that LD_PRELOAD names; the linker ignores what it cannot load."""
    for name in settings.preloads:
        place = search(target, name, head, above=(), settings=settings, machine=machine)
        if place.path is not None and not place.refusal:
            yield place.path


def refusal_of(target: Target, path: Path, machine: int) -> str:
    """Why the linker refuses a file that is opened by its path, in its own words; "" if not."""
    place = _look_at(target, path, machine, is_named=True)
    return place.refusal if place.path is not None else f"{printable(path)} cannot be opened"
