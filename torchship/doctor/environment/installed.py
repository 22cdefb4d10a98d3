"""The distributions that a Python has, and which of several copies it uses.

Python takes the first entry of `sys.path` that has a module, and the first metadata of a name. A
copy behind it is hidden: it is never imported, whatever is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from ...judge.project import Record
from ...judge.records import NOTHING
from ...judge.target import Target
from ...judge.text import is_file, list_names
from .metadata import Core, core_of, has_list, places_in
from .standards import normal

SITE_NAMES = ("site-packages", "dist-packages")


def site_folders(target: Target) -> list[Path]:
    """The folders in which the target has packages."""
    entries = (*target.search_path(), target.prefix)
    return [Path(entry) for entry in dict.fromkeys(entries) if entry]


class Distribution(Record, kw_only=True):
    """An installed distribution."""

    place: Path  #: its metadata
    core: Core

    @property
    def name(self) -> str:
        return self.core.name

    @property
    def version(self) -> str:
        return self.core.version

    @property
    def site(self) -> Path:
        return self.place.parent


class HiddenCopy(Record, kw_only=True):
    """A distribution that Python does not use, and the one of the same name that it does."""

    copy: Distribution
    used: Distribution


def distributions_in(target: Target, site: Path) -> Iterator[Distribution]:
    """Every distribution whose metadata lie in a folder, also a second one of a name."""
    for place in places_in(site):
        core = None if _is_of_source_folder(place) else core_of(target, place)
        if core is not None:
            yield Distribution(place=place, core=core)


def _is_of_source_folder(place: Path) -> bool:
    """Whether metadata lie in a source folder, where a build left them."""
    is_egg = place.suffix == ".egg-info"
    return is_egg and place.parent.name not in SITE_NAMES and not has_list(place)


def installed(target: Target, sites: Iterable[Path]) -> dict[str, Distribution]:
    """The distributions that Python uses, by normalized name; `sites` as on `sys.path`."""
    used: dict[str, Distribution] = {}
    for site in dict.fromkeys(sites):
        for one in distributions_in(target, site):
            used.setdefault(normal(one.name), one)
    return used


def hidden_copies(target: Target, sites: Iterable[Path]) -> list[HiddenCopy]:
    """The distributions of which an entry before has another copy."""
    sites = list(dict.fromkeys(sites))
    used = installed(target, sites)
    return [
        HiddenCopy(copy=one, used=used[normal(one.name)])
        for site in sites
        for one in distributions_in(target, site)
        if one.place != used[normal(one.name)].place and site != used[normal(one.name)].site
    ]


class Reach:
    """Which files Python may import: those whose package no other one of its name hides."""

    def __init__(
        self, sites: Iterable[Path], places: Mapping[str, tuple[Path, ...]] = NOTHING
    ) -> None:
        """`sites` as on `sys.path`; `places` are those that Python told, by the module."""
        self._sites = list(dict.fromkeys(sites))
        self._places = places
        self._names: dict[Path, list[str]] = {}
        self._before: dict[tuple[Path, str], Path | None] = {}

    def hiding(self, path: Path) -> Path | None:
        """The module that hides the one to which a file belongs: its folder, or its file. None
        for a file that is reached, or that belongs to no module. A folder without `__init__.py`
        hides nothing."""
        module = self.module_of(path)
        home = self._home(path)
        places = [module_at(place) for place in self._places.get(module, ())]
        if places:
            # What lies beside a package in its entry of the path goes with it.
            is_beside = home is not None and any(_is_same(home, one.parent) for one in places)
            return None if is_beside or _is_in(path, places) else places[0]
        return self._place_before(home, module) if home is not None else None

    def module_of(self, path: Path) -> str:
        """The first module on the way to a file; "" if it lies in none."""
        home = self._home(path)
        if home is None and not any(is_file(folder / "__init__.py") for folder in path.parents):
            return ""  # a library, which only looks like a module
        top = path.relative_to(home).parts[0].partition(".")[0] if home else top_package(path)
        return top if all(map(str.isidentifier, top.split("."))) else ""

    def _home(self, path: Path) -> Path | None:
        homes = [site for site in self._sites if site in path.parents]
        return max(homes, key=lambda site: len(site.parts), default=None)

    def _place_before(self, home: Path, top: str) -> Path | None:
        """What an entry of `sys.path` before `home` has under a name, by reading."""
        if (home, top) not in self._before:
            before = self._sites[: self._sites.index(home)]
            found = (self._regular(site, top) for site in before)
            self._before[home, top] = next(filter(None, found), None)
        return self._before[home, top]

    def _regular(self, site: Path, top: str) -> Path | None:
        """The package or module of this name in an entry of `sys.path`."""
        if site not in self._names:
            self._names[site] = list_names(site)
        if is_file(site / top / "__init__.py"):
            return site / top
        files = (name for name in self._names[site] if name.startswith(f"{top}."))
        return next((site / name for name in files if name.endswith((".py", ".so"))), None)


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path is one of some folders, or lies in one, whatever links lead there."""
    real = os.path.realpath(path)
    roots = map(os.path.realpath, folders)
    return any(real == root or real.startswith(f"{root}{os.sep}") for root in roots)


def _is_same(path: Path, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def module_in(folder: Path, name: str) -> Path | None:
    """The folder of a package, or the file of a module, of this name in a folder."""
    for place in (folder / name / "__init__.py", folder / f"{name}.py"):
        if is_file(place):
            return module_at(place)
    return None


def module_at(place: Path) -> Path:
    """A module by the file of which Python makes it: the folder of a package, else the file."""
    return place.parent if place.name == "__init__.py" else place


def top_package(path: Path, entries: Container[Path] = ()) -> str:
    """The first module on the way to an object: its own, or the outermost package it lies in; that
    of a namespace package has dots. Without an `__init__.py`, its folder in a site folder is one.
    `entries` are those of `sys.path`."""
    regular = [folder for folder in path.parents if is_file(folder / "__init__.py")]
    if not regular:
        home = next((folder for folder in path.parents if folder.name in SITE_NAMES), path.parent)
        return path.relative_to(home).parts[0].partition(".")[0]
    # Packages lie in each other without a gap, but their objects may lie further in.
    top = regular[0]
    while is_file(top.parent / "__init__.py"):
        top = top.parent
    sites = (one for one in top.parents if one.name in SITE_NAMES or one in entries)
    site = next(sites, top.parent)
    return ".".join(top.relative_to(site).parts)
