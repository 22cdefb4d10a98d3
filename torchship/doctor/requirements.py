"""Probe: what a distribution requires, and libraries that its own Python opens before its objects.

The dynamic linker does not find a library in the wheel of another distribution. The Python of a
package may open it first, by its path; then the object finds it in the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

from ..judge.budget import Budget
from ..judge.interpreter import search_path
from ..judge.records import BinaryRecord, Neighbour, Runtime, parse_version
from ..judge.text import list_names, printable, read_regular
from .owner import distributions, metadata_of, normal, required_by

_MAX_DEPTH = 3
_MAX_REQUIREMENTS = 300
_MAX_SOURCE = 1 << 18
_MAX_SOURCES = 200
_MAX_FOLDERS = 500
_MAX_LIBRARIES = 50
_MAX_MARKER = 300
_OPENS = (b"CDLL(", b"load_library(", b"LoadLibrary(", b"dlopen(")
_COMPARISON = re.compile(
    r"""\(?\s*(\w+)\s*(==|!=|>=|<=|>|<|in|not in)\s*["']([^"']{0,100})["']\s*\)?"""
)


def look_around(
    binary: BinaryRecord, missing: Iterable[str], runtime: Runtime, budget: Budget
) -> BinaryRecord:
    """The binary with the requirements of its package that are not met and, of the libraries
    that the linker does not find, those in another wheel. Raises BudgetSpentError."""
    place = metadata_of(binary.path) if binary.owner is not None else None
    if place is None:
        return binary
    sites = _sites(search_path(), runtime.torch.root if runtime.torch is not None else None)
    unmet, required = _follow(place, runtime, budget)
    sources: list[bytes] | None = None
    neighbours = []
    for library in list(missing)[:_MAX_LIBRARIES]:
        budget.check_time()
        found = _in_wheels(library, sites)
        if found is None:
            continue
        info, path = found
        if sources is None:
            sources = list(_sources(binary, place))
        stem = library.partition(".so")[0].encode()
        is_opened = any(stem in source for source in sources)
        if is_opened or info in required:
            neighbours.append(
                Neighbour(
                    library=library,
                    path=path,
                    distribution=printable(info.name.partition("-")[0]),
                    is_opened=is_opened,
                )
            )
    return binary._replace(unmet=unmet, neighbours=tuple(neighbours))


def _follow(
    place: Path, runtime: Runtime, budget: Budget
) -> tuple[tuple[str, ...], frozenset[Path]]:
    """The requirements of a distribution that are not met, and the metadata of what it
    requires, directly or not. Raises BudgetSpentError."""
    root = runtime.torch.root if runtime.torch is not None else None
    installed = installed_metadata(search_path(), root)
    required: dict[Path, None] = {}
    unmet: dict[str, None] = {}
    queue = [(place, 0)]
    for info, depth in queue:  # the loop appends to the queue
        budget.check_time()
        for requirement in requirements_here(info, runtime):
            name = normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
            below = installed.get(name)
            if below is None and depth == 0:
                unmet[requirement] = None
            if below is None or below in required or len(required) >= _MAX_REQUIREMENTS:
                continue
            required[below] = None
            if depth < _MAX_DEPTH:
                queue.append((below, depth + 1))
    return tuple(unmet), frozenset(required)


def installed_metadata(entries: Iterable[str], torch: Path | None) -> dict[str, Path]:
    """The metadata of each installed distribution, by its normalized name; `entries` are those
    of `sys.path`, `torch` is the folder of torch."""
    sites = reversed(_sites(entries, torch))
    return {name: info for site in sites for name, info in _installed(site)}


def _sites(entries: Iterable[str], torch: Path | None) -> list[Path]:
    sites = [Path(entry) for entry in entries if entry]
    if torch is not None:
        sites.append(torch.parent)
    return list(dict.fromkeys(sites))


def _installed(site: Path) -> Iterator[tuple[str, Path]]:
    for name in list_names(site):
        if name.endswith((".dist-info", ".egg-info")):
            yield normal(name.rpartition(".")[0].partition("-")[0]), site / name


def requirements_here(info: Path, runtime: Runtime) -> Iterator[str]:
    """The requirements that surely hold here; one whose marker cannot be told does not count."""
    with suppress(OSError):
        for line in required_by(info)[:_MAX_REQUIREMENTS]:
            requirement, _, marker = line.partition(";")
            if not marker.strip() or holds(marker, runtime):
                yield requirement.strip().replace(" ", "").replace("(", "").replace(")", "")


def holds(marker: str, runtime: Runtime) -> bool:
    """Whether a marker such as `python_version < "3.12" and sys_platform == "linux"` surely
    holds; False for one of another form, and for that of an extra."""
    alternatives = [
        re.split(r"\s+and\s+", part) for part in re.split(r"\s+or\s+", marker[:_MAX_MARKER])
    ]
    if len(alternatives) > 1 and "(" in marker:
        return False  # the parentheses may group the alternatives
    return any(all(_comparison_holds(part, runtime) for part in parts) for parts in alternatives)


def _comparison_holds(comparison: str, runtime: Runtime) -> bool:
    parts = _COMPARISON.fullmatch(comparison.strip())
    if parts is None:
        return False
    variable, sign, value = parts.groups()
    numbers = {
        "python_version": runtime.python[:2],
        "python_full_version": runtime.python,
    }.get(variable)
    if numbers is not None:
        bound = parse_version(value)
        return bound is not None and _compare(numbers[: len(bound)], sign, bound)
    actual = {
        "sys_platform": runtime.system,
        "platform_system": runtime.system.capitalize(),
        "platform_machine": runtime.machine,
        "os_name": "posix",
        "implementation_name": runtime.implementation,
        "platform_python_implementation": {"cpython": "CPython"}.get(runtime.implementation, ""),
    }.get(variable)
    if actual is None or sign not in ("==", "!="):
        return False
    return (actual == value) == (sign == "==")


def _compare(numbers: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    return {
        "==": numbers == bound,
        "!=": numbers != bound,
        ">=": numbers >= bound,
        "<=": numbers <= bound,
        ">": numbers > bound,
        "<": numbers < bound,
    }.get(sign, False)


def _in_wheels(library: str, sites: Iterable[Path]) -> tuple[Path, Path] | None:
    """The metadata of the distribution that has a library of this name, and the library."""
    for site in sites:
        found = _libraries_of(site).get(library)
        if found is not None:
            return found
    return None


@cache
def _libraries_of(site: Path) -> Mapping[str, tuple[Path, Path]]:
    """The metadata and the path of each shared object of a site folder, by file name."""
    place_of: dict[str, tuple[Path, Path]] = {}
    for info, files in distributions(site).items():
        for file in files:
            place_of.setdefault(file.name, (info, file))
    return place_of


def _sources(binary: BinaryRecord, place: Path) -> Iterator[bytes]:
    """The Python files of a package that open libraries by themselves."""
    tops = [name for name in _top_folders(place) if name]
    if place.parent in binary.path.parents:
        tops.append(binary.path.relative_to(place.parent).parts[0])
    count = 0
    for top in dict.fromkeys(tops):
        for folder, _, files in islice(os.walk(place.parent / top), _MAX_FOLDERS):
            for name in files:
                if not name.endswith(".py"):
                    continue
                count += 1
                if count > _MAX_SOURCES:
                    return
                with suppress(OSError):
                    source = read_regular(Path(folder, name), _MAX_SOURCE)
                    if any(word in source for word in _OPENS):
                        yield source


def _top_folders(place: Path) -> list[str]:
    with suppress(OSError):
        names = read_regular(place / "top_level.txt", _MAX_SOURCE).decode("utf-8", "replace")
        return [name for name in names.split("\n")[:20] if re.fullmatch(r"\w{1,100}", name)]
    return []
