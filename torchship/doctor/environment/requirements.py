"""What a distribution requires, and libraries that its own Python opens before its objects.

The dynamic linker does not find a library in the wheel of another distribution. The Python of a
package may open it first, by its path; then the object finds it in the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...judge.records import BinaryRecord, Neighbour, Runtime
from ...judge.target import Target, once
from ...judge.text import printable, read_regular
from .installed import installed
from .metadata import core_of, top_modules
from .owner import distributions, metadata_of
from .standards import Need, Python, parse_need

_DEPTH = 3
_OPENS = (b"CDLL(", b"load_library(", b"LoadLibrary(", b"dlopen(")


def look_around(binary: BinaryRecord, missing: Iterable[str], runtime: Runtime) -> BinaryRecord:
    """The binary with those of the libraries that the linker does not find that are in another
    wheel. Raises BudgetSpentError."""
    place = metadata_of(runtime.target, binary.path) if binary.owner is not None else None
    if place is None:
        return binary
    sites = _sites(runtime)
    required = _required(place, runtime)
    sources: list[bytes] | None = None
    neighbours = []
    for library in missing:
        runtime.target.budget.spend()
        found = _in_wheels(runtime.target, library, sites)
        if found is None:
            continue
        info, path = found
        if sources is None:
            sources = list(_sources(binary, place, runtime.target))
        stem = library.partition(".so")[0].encode()
        is_opened = any(stem in source for source in sources)
        if is_opened or info in required:
            neighbours.append(
                Neighbour(
                    library=library,
                    path=path,
                    distribution=_name_of(runtime.target, info),
                    is_opened=is_opened,
                )
            )
    return binary._replace(neighbours=tuple(neighbours))


def not_installed(binary: BinaryRecord, runtime: Runtime) -> list[str]:
    """What the package of a binary requires and is not installed. Raises BudgetSpentError."""
    place = metadata_of(runtime.target, binary.path) if binary.owner is not None else None
    if place is None:
        return []
    here = installed(runtime.target, _sites(runtime))
    needs = (need for need in requirements_here(place, runtime) if need.name not in here)
    return [*dict.fromkeys(need.text for need in needs)]


def _required(place: Path, runtime: Runtime) -> frozenset[Path]:
    """The metadata of what a distribution requires, directly or not. Raises BudgetSpentError."""
    here = installed(runtime.target, _sites(runtime))
    required: dict[Path, None] = {}
    queue = [(place, 0)]
    for info, depth in queue:  # the loop appends to the queue
        runtime.target.budget.spend()
        for need in requirements_here(info, runtime):
            below = here.get(need.name)
            if below is None or below.place in required:
                continue
            required[below.place] = None
            if depth < _DEPTH:
                queue.append((below.place, depth + 1))
    return frozenset(required)


def _sites(runtime: Runtime) -> list[Path]:
    sites = [Path(entry) for entry in runtime.target.search_path() if entry]
    if runtime.torch is not None:
        sites.append(runtime.torch.root.parent)
    return list(dict.fromkeys(sites))


def requirements_here(info: Path, runtime: Runtime) -> Iterator[Need]:
    """The requirements in a metadata folder that hold in the target, without extras."""
    core = core_of(runtime.target, info)
    variables = Python.of(runtime).variables
    for need in map(parse_need, core.needs if core else ()):
        if need is not None and need.holds(variables):
            yield need


def _in_wheels(target: Target, library: str, sites: Iterable[Path]) -> tuple[Path, Path] | None:
    """The metadata of the distribution that has a library of this name, and the library."""
    for site in sites:
        found = _libraries_of(target, site).get(library)
        if found is not None:
            return found
    return None


@once
def _libraries_of(target: Target, site: Path) -> Mapping[str, tuple[Path, Path]]:
    """The metadata and the path of each shared object of a site folder, by file name."""
    place_of: dict[str, tuple[Path, Path]] = {}
    for info, files in distributions(target, site).items():
        for file in files:
            place_of.setdefault(file.name, (info, file))
    return place_of


def _sources(binary: BinaryRecord, place: Path, target: Target) -> Iterator[bytes]:
    """The Python files of a package that open libraries by themselves."""
    tops = top_modules(target, place)
    if place.parent in binary.path.parents:
        tops.append(binary.path.relative_to(place.parent).parts[0])
    for top in dict.fromkeys(tops):
        for folder, _, files in os.walk(place.parent / top):
            target.budget.spend()
            for name in files:
                if not name.endswith(".py"):
                    continue
                with suppress(OSError):
                    source = read_regular(Path(folder, name), budget=target.budget)
                    if any(word in source for word in _OPENS):
                        yield source


def _name_of(target: Target, place: Path) -> str:
    core = core_of(target, place)
    return core.name if core is not None else printable(place.stem)
