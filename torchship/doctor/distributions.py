"""The distributions of an environment, as Python finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ..judge.project import Record
from ..judge.text import is_file, list_names, printable, read_regular
from .known_packages import CAN_DO_WITHOUT, COMPILES, NEEDS
from .owner import SITE_NAMES, distributions, metadata_lines, normal, torch_requirements

_MAX_RECORD = 8 << 20
_MAX_FILES = 50_000
_MAX_PACKAGES = 10_000


class Package(Record, kw_only=True):
    """An installed distribution."""

    name: str
    version: str
    place: Path  #: its metadata
    is_of_torch: bool  #: whether it requires torch, or is known to have code for it

    @property
    def site(self) -> Path:
        return self.place.parent


def installed(sites: Iterable[Path]) -> Iterator[Package]:
    """The distributions of site folders, each name once, as Python finds them."""
    seen: set[str] = set()
    for site in sites:
        names = [name for name in list_names(site) if name.endswith((".dist-info", ".egg-info"))]
        for place in (site / name for name in names[:_MAX_PACKAGES]):
            if _is_of_source_folder(place):
                continue
            package = _read(place)
            if package is not None and normal(package.name) not in seen:
                seen.add(normal(package.name))
                yield package


def _is_of_source_folder(place: Path) -> bool:
    """Whether metadata lies in a source folder, where a build left it."""
    is_egg = place.suffix == ".egg-info"
    return (
        is_egg
        and place.parent.name not in SITE_NAMES
        and not is_file(place / "installed-files.txt")
    )


def _read(place: Path) -> Package | None:
    try:
        lines = metadata_lines(place)
    except OSError:
        return None
    fields: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(": ")
        fields.setdefault(key, printable(value[:200]))
    if "Name" not in fields:
        return None
    name = fields["Name"]
    is_known = normal(name) in {*NEEDS, *CAN_DO_WITHOUT, *COMPILES}
    return Package(
        name=name,
        version=fields.get("Version", ""),
        place=place,
        is_of_torch=is_known or bool(torch_requirements(place)),
    )


def files_of(package: Package) -> list[str]:
    """The names in the list of files of a distribution; without one, its shared objects."""
    for name in ("RECORD", "installed-files.txt"):
        try:
            content = read_regular(package.place / name, _MAX_RECORD).decode("utf-8", "replace")
        except OSError:
            continue
        names = (line.partition(",")[0].strip('"') for line in content.splitlines())
        return list(islice(names, _MAX_FILES))
    return [str(file) for file in distributions(package.site).get(package.place, [])]
