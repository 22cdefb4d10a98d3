"""The model of a process: what it has loaded, and what loading one more object would do.

What the search for one object finds is an `Opening`, which reaches the rules whole: a new fact of
the search is a field of it, which `_Opening` fills.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from ..budget import BudgetSpentError
from ..project import Record
from ..reading.elf import Elf, ElfBoundError, ElfError, Header, Reference
from ..target import Target
from ..text import printable
from .search import (
    Head,
    Place,
    Settings,
    head_of,
    identity,
    machine_number,
    preloaded_paths,
    refusal_of,
    search,
    version_names,
)

#: The providers of a file that was not looked up yet: no process has them.
_NOT_BOUND = frozenset({Path()})
_NO_SIBLINGS: Mapping[str, Path] = MappingProxyType({})
#: GCC's headers name this symbol without using it, so the dynamic linker never looks for it.
_UNUSED = b"_ZSt21ios_base_library_initv"


class Refusal(Record, kw_only=True):
    """A file that was found as a library and that the dynamic linker cannot load."""

    path: Path
    why: str  #: such as "file too short"


class MissingVersion(Record, kw_only=True):
    """A symbol version that a library does not define."""

    needed_by: Path
    library: Path
    version: str


class NotLinked(Record, kw_only=True):
    """Symbols that a library of torch defines, for a file that does not name the library."""

    file: Path
    library: Path
    names: tuple[str, ...]


class BroughtIn(Record, kw_only=True):
    """A library that a variable brings in, and without which the object would load."""

    file: Path
    variable: str  #: LD_LIBRARY_PATH or LD_PRELOAD


class Opening(Record, kw_only=True):
    """What `dlopen` would find for an object, and what it would mind. It reaches the rules."""

    files: tuple[Path, ...]  #: the object and all libraries that it needs, nearest first
    new: Mapping[Path, Header]  #: those of them that are not loaded yet
    names: Mapping[str, Path]  #: the files by the names under which the linker knows them
    missing: tuple[str, ...]  #: the libraries that were not found
    refused: tuple[Refusal, ...]
    by_library_path: tuple[Path, ...]  #: the new files that LD_LIBRARY_PATH brought in
    forbidding: tuple[Path, ...]  #: the new files that a process that runs cannot load
    #: Whether the process has an executable stack; None if its program does not say.
    executable_stack: bool | None
    static_tls_left: int  #: the bytes of static thread-local storage that are left in the process
    versions: tuple[MissingVersion, ...] = ()
    #: The strong undefined symbols that no library defines, by the file that needs them.
    symbols: Mapping[Path, tuple[str, ...]]
    #: Those of them that a library of torch has; they are not among `symbols`.
    not_linked: tuple[NotLinked, ...] = ()
    brought_in: BroughtIn | None = None  #: what keeps it from loading, if a variable does
    is_bound: bool = True  #: whether symbols were looked up: not for a torch that is not installed

    @property
    def succeeds(self) -> bool:
        return not self.stops_early and not (self.versions or self.symbols)

    @property
    def stops_early(self) -> bool:
        """Whether the linker gives up before it looks at symbols."""
        return bool(self.missing or self.refused or self.forbidding)


class Process:
    """A process that runs a program, as its dynamic linker sees it. `open` changes nothing, and
    `keep` loads what `open` found.

    Attributes:
        target: what remembers the facts of files.
        settings: what the environment tells the linker.
        names: the loaded files by the names that the linker knows: SONAMEs and needed names.
        global_scope: the files whose symbols every later object sees.
        preloaded: the files that LD_PRELOAD brought in.
        by_library_path: the loaded files that LD_LIBRARY_PATH brought in.
        static_tls: the bytes of static thread-local storage that loaded libraries took after
            the start of the program.
    """

    def __init__(self, target: Target, program: Path, settings: Settings) -> None:
        self.target = target
        program = program.resolve()
        head = head_of(target, program)
        settings = settings._replace(program=program, interpreter=head.header.interpreter)
        self.settings = settings
        self.names: dict[str, Path] = {}
        self.global_scope: list[Path] = []
        self.by_library_path: list[Path] = []
        self.static_tls = 0
        self._files: dict[tuple[int, int], Path] = {}
        self._bound: dict[Path, frozenset[Path]] = {}
        self.is_running = False  #: what is opened before belongs to the start of the program
        self.machine = head.header.machine or machine_number()
        self.executable_stack = head.header.executable_stack
        if head.header.interpreter:
            self._add(Path(head.header.interpreter), ())
        self.preloaded = tuple(preloaded_paths(target, settings, head, self.machine))
        self.caller_rpath = head.rpath  # what is preloaded has it, too
        for path in (program, *self.preloaded):
            self.keep(self.open(path), is_global=True)
        self.static_tls = 0  # there is room for all that the program starts with
        python = next((f for n, f in self.names.items() if n.startswith("libpython3.")), None)
        of_python = head_of(target, python).rpath if python else ()
        self.caller_rpath = tuple(dict.fromkeys((*of_python, *head.rpath)))
        self.is_running = True

    def _add(self, path: Path, names: Iterable[str]) -> None:
        key = identity(self.target, path)
        if key is not None:
            path = self._files.setdefault(key, path)
        for name in (*names, head_of(self.target, path).header.soname, str(path)):
            if name:
                self.names.setdefault(name, path)

    def keep(self, opening: Opening, *, is_global: bool) -> None:
        """Load what an opening found, with its symbols in the global scope or not."""
        for path, header in opening.new.items():
            self._add(path, ())
            self.static_tls += header.static_tls
        for name, path in opening.names.items():
            self.names.setdefault(name, path)
        self.by_library_path += opening.by_library_path
        if is_global:
            self.global_scope += [f for f in opening.files if f not in self.global_scope]

    def open(self, root: Path, siblings: Mapping[str, Path] = _NO_SIBLINGS) -> Opening:
        """What the linker would load for an object; symbols are not looked up.

        `siblings` are libraries that the object's package may have loaded before, by file
        name. Raises BudgetSpentError.
        """
        opening = _Opening(self, siblings)
        opening.add_root(root)
        return opening.finish()

    def find(self, name: str, head: Head, above: tuple[Path, ...]) -> Place:
        """A library that an object with this head needs. Raises BudgetSpentError."""
        known = self.names.get(name)
        if known is not None:
            return Place(path=known)
        return search(
            self.target, name, head, above=above, settings=self.settings, machine=self.machine
        )

    def loaded(self, path: Path) -> Path | None:
        """The path under which a file is loaded; None if it is not loaded."""
        key = identity(self.target, path)
        return self._files.get(key) if key is not None else None

    def bind(self, opening: Opening, scope: Iterable[Path] = ()) -> Opening:
        """Look up the symbol versions and the symbols of an opening's new files, as the linker
        does for Python, which binds everything at once. `scope` are more files that provide
        symbols. Raises BudgetSpentError."""
        if opening.stops_early:
            return opening
        names = {**opening.names, **self.names}
        versions = tuple(
            missing for path in opening.new for missing in self._missing_versions(path, names)
        )
        if any(version_names(self.target, missing.library) for missing in versions):
            return opening._replace(versions=versions)  # the linker looks at them first
        providers = dict.fromkeys((*opening.files, *scope, *self.global_scope))
        symbols = self._missing_symbols(opening.new, providers)
        if versions and symbols:
            needing = {missing.needed_by for missing in versions}
            first = _bound_first(opening.new, {*needing, *symbols})
            # Which fault of one file the linker meets first, only its relocations tell.
            versions = versions if first in needing else ()
            symbols = symbols if first in symbols else {}
        return opening._replace(symbols=symbols, versions=versions)

    def _missing_versions(self, path: Path, names: Mapping[str, Path]) -> list[MissingVersion]:
        """The versions that a file needs and its libraries lack."""
        missing: list[MissingVersion] = []
        for need in head_of(self.target, path).versions:
            library = names.get(need.library)
            if library is None or need.is_weak or self._serves(library, need.version):
                continue
            missing.append(MissingVersion(needed_by=path, library=library, version=need.version))
        return missing

    def _serves(self, library: Path, version: str) -> bool:
        """Whether a library has a version. The linker only warns if it defines none at all, but
        kills the process if its symbols have no table of versions."""
        defined = version_names(self.target, library)
        if defined:
            return version in defined
        return head_of(self.target, library).header.has_symbol_versions

    def _missing_symbols(
        self, files: Iterable[Path], providers: Mapping[Path, None]
    ) -> dict[Path, tuple[str, ...]]:
        """The strong undefined symbols of each file that no provider defines.

        A file whose symbols were all found before, in providers that are here again, is not looked
        at: a library that many extensions need is looked up once.
        """
        bound = self._bound
        unbound = [path for path in files if not bound.get(path, _NOT_BOUND) <= providers.keys()]
        users = self._users_of_references(unbound)
        used: dict[Path, set[Path]] = {path: set() for path in unbound}
        left = list(users)
        for provider in providers:
            if not left:
                break
            with suppress(ElfError, OSError), self._reading(provider) as elf:
                missing_here = []
                for ref in left:
                    if not elf.defines(ref.name, version=ref.version):
                        missing_here.append(ref)
                        continue
                    for path in users[ref]:
                        used[path].add(provider)
                left = missing_here
        missing: dict[Path, list[str]] = {}
        for reference in left:
            for path in users[reference]:
                missing.setdefault(path, []).append(printable(reference.name))
        bound.update({path: frozenset(used[path]) for path in unbound if path not in missing})
        return {path: tuple(names) for path, names in missing.items()}

    def _users_of_references(self, files: Iterable[Path]) -> dict[Reference, list[Path]]:
        """The files that need each strong undefined symbol."""
        users: dict[Reference, list[Path]] = {}
        for path in files:
            with suppress(ElfError, OSError), self._reading(path) as elf:
                for reference in elf.references():
                    if reference.name != _UNUSED:
                        users.setdefault(reference, []).append(path)
        return users

    @contextmanager
    def _reading(self, path: Path) -> Iterator[Elf]:
        """An open file. Raises BudgetSpentError where its names lie over each other."""
        try:
            with Elf(path, self.target.budget) as elf:
                yield elf
        except ElfBoundError as error:
            raise BudgetSpentError(f"reading {printable(path.name)} with {error}") from None


class _Opening:
    """The search for the libraries of one object: breadth first, as the linker does it."""

    def __init__(self, process: Process, siblings: Mapping[str, Path]) -> None:
        self._process = process
        self._siblings = siblings
        self._names: dict[str, Path] = {}
        self._files: dict[Path, None] = {}
        self._new: dict[Path, Header] = {}
        self._missing: dict[str, None] = {}
        self._refused: list[Refusal] = []
        self._by_library_path: dict[Path, None] = {}
        self._queue: list[tuple[Path, tuple[Path, ...]]] = []

    def add_root(self, root: Path) -> None:
        process = self._process
        refusal = refusal_of(process.target, root, process.machine) if process.machine else ""
        if refusal:
            self._refused.append(Refusal(path=root, why=refusal))
        self._queue.append((process.loaded(root) or root, process.caller_rpath))
        for path, above in self._queue:  # `_add_needed` appends to it
            self._add_file(path, above)

    def _add_file(self, path: Path, above: tuple[Path, ...]) -> None:
        if path in self._files:
            return
        head = head_of(self._process.target, path)
        self._files[path] = None
        if self._process.loaded(path) is None:
            self._new[path] = head.header
        if head.header.soname:
            self._names.setdefault(head.header.soname, path)
        for name in head.needed:
            self._add_needed(name, head, above)

    def _add_needed(self, name: str, head: Head, above: tuple[Path, ...]) -> None:
        if name in self._names or name in self._missing:
            return
        self._process.target.budget.spend()
        place = self._process.find(name, head, above)
        target = place.path or self._siblings.get(name)
        if target is None:
            self._missing[name] = None
            return
        target = self._process.loaded(target) or target
        self._names[name] = target
        refusal = place.refusal
        if not refusal and self._process.loaded(target) is None:
            refusal = head_of(self._process.target, target).refusal
        if refusal:
            self._refused.append(Refusal(path=target, why=refusal))
            return
        if place.by_library_path:
            self._by_library_path[target] = None
        self._queue.append((target, (*head.rpath, *above)))

    def finish(self) -> Opening:
        return Opening(
            files=tuple(self._files),
            new=self._new,
            names=self._names,
            missing=tuple(self._missing),
            refused=tuple(self._refused),
            by_library_path=tuple(self._by_library_path),
            forbidding=self._forbidding(),
            executable_stack=self._process.executable_stack,
            static_tls_left=max(self._process.settings.static_tls - self._process.static_tls, 0),
            symbols={},
        )

    def _forbidding(self) -> tuple[Path, ...]:
        if not self._process.is_running:
            return ()
        return tuple(path for path, header in self._new.items() if header.refusal)


def _bound_first(files: Iterable[Path], failing: Container[Path]) -> Path:
    """The failing file to which the linker comes first: it binds what it loaded last before the
    others."""
    return next(path for path in reversed([*files]) if path in failing)
