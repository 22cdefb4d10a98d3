"""The distributions of an environment: whose a module or a file is, and what each requires."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from ..judge.project import Record
from ..judge.records import Runtime
from ..judge.text import read_regular
from .distributions import Package
from .owner import normal
from .requirements import requirements_here
from .versions import satisfies

_MAX_RECORD = 8 << 20
_MAX_TOPS = 200


class ListedFile(Record):
    """A file in the list of a distribution."""

    path: Path
    size: int | None  #: when it was installed; None if the list does not say


class Requirement(Record, kw_only=True):
    """A requirement of a distribution that holds here."""

    text: str  #: as pip takes it
    name: str  #: normalized
    installed: Package | None
    is_met: bool | None  #: None if that cannot be told


class Installed:
    """The distributions that the judged Python finds, each name once."""

    def __init__(self, packages: Sequence[Package], runtime: Runtime) -> None:
        self._packages = packages
        self._runtime = runtime
        self._by_name = {normal(package.name): package for package in packages}

    def named(self, name: str) -> Package | None:
        return self._by_name.get(normal(name))

    def of_module(self, module: str) -> Package | None:
        """The distribution that has a top-level module: the one of its name, if several do."""
        top = module.partition(".")[0]
        owners = self._owners_of_tops.get(top, ())
        named = [one for one in owners if normal(one.name) == normal(top)]
        return next(iter([*named, *owners]), None) or self.named(top)

    def of_file(self, file: str) -> Package | None:
        """The distribution that has a file, by the folder under its site folder."""
        for site in {package.site for package in self._packages}:
            with suppress(ValueError):
                inner = Path(file).relative_to(site).parts
                return self.of_module(inner[0].partition(".")[0]) if inner else None
        return None

    def requirements(self, package: Package) -> Iterator[Requirement]:
        """What a distribution requires here, without its extras."""
        for text in requirements_here(package.place, self._runtime):
            name = normal(re.split(r"[^\w.-]", text, maxsplit=1)[0])
            installed = self.named(name)
            met = None if installed is None else satisfies(text, installed.version)
            yield Requirement(text=text, name=name, installed=installed, is_met=met)

    def requirement_on(self, package: Package | None, name: str) -> Requirement | None:
        """What a distribution requires of another one."""
        if package is None:
            return None
        wanted = normal(name)
        return next((one for one in self.requirements(package) if one.name == wanted), None)

    def files(self, package: Package) -> Iterator[ListedFile]:
        """The files in a distribution's RECORD."""
        yield from listed_files(package.place)

    @cached_property
    def _owners_of_tops(self) -> Mapping[str, tuple[Package, ...]]:
        owners: dict[str, list[Package]] = {}
        for package in self._packages:
            for top in tops_of(package.place):
                owners.setdefault(top, []).append(package)
        return {top: tuple(packages) for top, packages in owners.items()}


def listed_files(place: Path) -> Iterator[ListedFile]:
    """The files that the RECORD of a distribution lists."""
    with suppress(OSError, csv.Error):
        content = read_regular(place / "RECORD", _MAX_RECORD).decode("utf-8", "replace")
        for row in csv.reader(content.splitlines()):
            if row:
                size = int(row[2]) if len(row) > 2 and row[2].isdecimal() else None
                yield ListedFile(place.parent / row[0], size)


def tops_of(place: Path) -> list[str]:
    """The names of the modules that a distribution adds to the search path."""
    tops: dict[str, None] = {}
    with suppress(OSError):
        content = read_regular(place / "top_level.txt", 1 << 16).decode("utf-8", "replace")
        tops.update(dict.fromkeys(name for name in content.split() if name.isidentifier()))
    for file in listed_files(place):
        top, separator, _ = os.path.relpath(file.path, place.parent).partition(os.sep)
        name = top if separator else _module_of(top)
        if name.isidentifier():
            tops.setdefault(name)
            if len(tops) > _MAX_TOPS:
                break
    return [*tops]


def _module_of(file: str) -> str:
    """The module in a file that lies directly in a site folder; "" if it is none."""
    stem, _, suffix = file.partition(".")
    return stem if suffix == "py" or suffix.endswith("so") else ""
