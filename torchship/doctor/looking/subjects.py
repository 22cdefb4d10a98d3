"""What is looked at: of each distribution, the modules to import and the extensions to load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...judge.linking.search import is_folder
from ...judge.project import Record
from ...judge.records import BinaryRecord, parse_file_name
from ...judge.target import Target
from ..environment.catalog import tops_of
from ..environment.installed import Distribution, module_in, top_package
from ..environment.metadata import is_only_unpacked, origin_of
from ..environment.owner import distributions
from ..environment.reached import Reached
from ..environment.standards import normal
from .look import Extension, Kind, Subject

#: What distributions put beside their modules by mistake.
_NO_MODULES = {"test", "tests", "docs", "doc", "example", "examples", "benchmarks", "tools"}
_MOST_MODULES = 3


class Subjects(Record, kw_only=True):
    """The subjects of a look, and whose they are."""

    subjects: tuple[Subject, ...]
    packages: Mapping[str, Distribution | None]  #: by the module that is imported
    module_of: Mapping[Path, str]  #: the module with which each object is loaded

    def naming(self, named: Mapping[str, Sequence[Distribution]]) -> Subjects:
        """These, and the modules that the user names, of some distributions each.

        Of a distribution that the user names by a module, that module alone is imported.
        """
        owner_of = {module: owners[0] for module, owners in named.items() if owners}
        asked = [owner.place for owner in owner_of.values()]
        kept = [s for s in self.subjects if not self._is_of(s.module, asked) or s.module in named]
        known = {subject.module for subject in kept}
        added = [Subject(module=module) for module in named if module not in known]
        nobodys = dict.fromkeys(named)
        return self._replace(
            subjects=(*kept, *added), packages={**owner_of, **nobodys, **self.packages, **owner_of}
        )

    def _is_of(self, module: str, places: Sequence[Path]) -> bool:
        owner = self.packages.get(module)
        return owner is not None and owner.place in places and not self._objects(module)

    def _objects(self, module: str) -> list[Path]:
        return [path for path, name in self.module_of.items() if name == module]


def subjects_of(
    target: Target,
    packages: Iterable[Distribution],
    binaries: Sequence[BinaryRecord],
    reached: Reached,
) -> Subjects:
    """The subjects for some distributions and for all objects that belong to them or to none."""
    by_path = {binary.path: binary for binary in binaries}
    subjects: dict[str, Subject] = {}
    owners: dict[str, Distribution | None] = {}
    module_of: dict[Path, str] = {}
    entries = {Path(entry) for entry in target.search_path() if entry}
    for package in packages:
        files = distributions(target, package.site).get(package.place, [])
        own = [by_path[path] for path in files if path in by_path]
        modules = modules_of(target, package, own)
        for binary in own:
            module = _nearest(binary.path, modules)
            if module:
                module_of[binary.path] = module
        for module in modules:
            owners.setdefault(module, package)
    for binary in binaries:
        if binary.path not in module_of:
            module = reached.modules_in_front.get(binary.path) or top_package(binary.path, entries)
            if _is_importable(module):
                module_of[binary.path] = module
                owners.setdefault(module, None)
    needed = {name for binary in binaries for name in binary.needed}
    for module in owners:
        objects = [by_path[path] for path, name in module_of.items() if name == module]
        extensions = [
            Extension(binary.path, _kind(binary))
            for binary in objects
            if _stands_alone(binary, needed)
            # Only a module can be sought by its name.
            and (binary.modules or binary.path not in reached.lacking)
        ]
        subjects[module] = Subject(module=module, extensions=tuple(extensions))
    return Subjects(subjects=tuple(subjects.values()), packages=owners, module_of=module_of)


def modules_of(
    target: Target, package: Distribution, binaries: Iterable[BinaryRecord]
) -> list[str]:
    """The modules that a user of a distribution imports: the one of its name, else those that hold
    its objects, else all."""
    tops = [top for top in tops_of(target, package.place) if top.lower() not in _NO_MODULES]
    name = normal(package.name).replace("-", "_")
    # top_level.txt may name a module that is not there.
    found = [top for top in tops if module_in(package.site, top)]
    named = [top for top in tops if top.lower() == name]
    # A folder without __init__.py is a module, too.
    named = [top for top in named if top in found or is_folder(target, package.site / top)]
    if named:
        return named
    holding = [*dict.fromkeys(top_package(binary.path) for binary in binaries)]
    importable = [top for top in holding if _is_importable(top)]
    public = [top for top in importable if not top.startswith("_")] or importable
    if not public:
        public = [top for top in found if not top.startswith("_")]
    # Those of an editable lie elsewhere, and not each tool that makes one says their names.
    is_elsewhere = all(top.startswith("_") for top in tops) and (
        origin_of(target, package.place).is_editable or is_only_unpacked(target, package.place)
    )
    if is_elsewhere:
        tops = [name]
    return public[:_MOST_MODULES] or [top for top in tops if top.lower() == name]


def _is_importable(module: str) -> bool:
    return all(part.isidentifier() for part in module.split("."))


def _nearest(path: Path, modules: Sequence[str]) -> str:
    top = top_package(path)
    return top if top in modules else next(iter(modules), "")


def _kind(binary: BinaryRecord) -> Kind:
    if binary.modules:
        return "module"
    needs_torch = any(name.startswith(("libtorch", "libc10")) for name in binary.needed)
    return "library" if binary.torch_symbols or needs_torch else "plain"


def _stands_alone(binary: BinaryRecord, needed: set[str]) -> bool:
    """Whether an object is one to be loaded by itself: no variant among which a loader chooses,
    and no library that another object brings along."""
    if parse_file_name(binary.path.name) is not None:
        return False
    return bool(binary.modules) or binary.path.name not in needed
