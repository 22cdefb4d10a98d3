"""The distributions that a Python has, and which of several copies it uses.

Python takes the first entry of `sys.path` that has a module, and the first metadata of a name. A
copy behind it is hidden: it is never imported, whatever is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ...judge.project import Record
from ...judge.text import is_file, list_names
from .metadata import Core, core_of, has_list, places_in
from .standards import normal

SITE_NAMES = ("site-packages", "dist-packages")
_MAX_DISTRIBUTIONS = 10_000


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


def distributions_in(site: Path) -> Iterator[Distribution]:
    """Every distribution whose metadata lie in a folder, also a second one of a name."""
    for place in places_in(site)[:_MAX_DISTRIBUTIONS]:
        core = None if _is_of_source_folder(place) else core_of(place)
        if core is not None:
            yield Distribution(place=place, core=core)


def _is_of_source_folder(place: Path) -> bool:
    """Whether metadata lie in a source folder, where a build left them."""
    is_egg = place.suffix == ".egg-info"
    return is_egg and place.parent.name not in SITE_NAMES and not has_list(place)


def installed(sites: Iterable[Path]) -> dict[str, Distribution]:
    """The distributions that Python uses, by normalized name; `sites` as on `sys.path`."""
    used: dict[str, Distribution] = {}
    for site in dict.fromkeys(sites):
        for one in distributions_in(site):
            used.setdefault(normal(one.name), one)
    return used


def hidden_copies(sites: Iterable[Path]) -> list[HiddenCopy]:
    """The distributions of which an entry before has another copy."""
    sites = list(dict.fromkeys(sites))
    used = installed(sites)
    return [
        HiddenCopy(copy=one, used=used[normal(one.name)])
        for site in sites
        for one in distributions_in(site)
        if one.place != used[normal(one.name)].place and site != used[normal(one.name)].site
    ]


class Reach:
    """Which files Python may import: those whose package no entry before has."""

    def __init__(self, sites: Iterable[Path]) -> None:
        """`sites` as on `sys.path`."""
        self._sites = list(dict.fromkeys(sites))
        self._names: dict[Path, list[str]] = {}
        self._hiding: dict[tuple[Path, str], Path | None] = {}

    def hiding(self, path: Path) -> Path | None:
        """The entry of `sys.path` whose module hides the one that a file belongs to; None for a
        file that is reached, or that lies in no entry. A folder without `__init__.py` hides
        nothing."""
        homes = [site for site in self._sites if site in path.parents]
        if not homes:
            return None
        home = max(homes, key=lambda site: len(site.parts))
        top = path.relative_to(home).parts[0].partition(".")[0]
        if (home, top) not in self._hiding:
            before = self._sites[: self._sites.index(home)]
            hiding = (site for site in before if self._is_regular(site, top))
            self._hiding[home, top] = next(hiding, None)
        return self._hiding[home, top]

    def _is_regular(self, site: Path, top: str) -> bool:
        """Whether an entry of `sys.path` has a package or a module of this name."""
        if site not in self._names:
            self._names[site] = list_names(site)
        if is_file(site / top / "__init__.py"):
            return True
        files = (name for name in self._names[site] if name.startswith(f"{top}."))
        return any(name.endswith((".py", ".so")) for name in files)
