"""Which distribution a module or a file belongs to, and what each requires of the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from ...judge.project import Record
from ...judge.records import Runtime
from ...judge.target import Target
from .installed import Distribution, installed, site_folders
from .metadata import Listed, listed_files, listed_names, top_modules
from .requirements import requirements_here
from .standards import admits, normal


class Requirement(Record, kw_only=True):
    """A requirement of a distribution that holds here."""

    text: str  #: as pip takes it
    name: str  #: normalized
    installed: Distribution | None
    is_met: bool


def catalog_of(runtime: Runtime) -> Catalog:
    """The catalog of the judged Python."""
    return Catalog([*installed(runtime.target, site_folders(runtime.target)).values()], runtime)


class Catalog:
    """The distributions that the judged Python uses, each name once."""

    def __init__(self, distributions: Sequence[Distribution], runtime: Runtime) -> None:
        self._distributions = distributions
        self._runtime = runtime
        self._by_name = {normal(one.name): one for one in distributions}

    def named(self, name: str) -> Distribution | None:
        return self._by_name.get(normal(name))

    def of_module(self, module: str) -> Distribution | None:
        """The distribution that has a top-level module: the one of its name, if several do."""
        top = module.partition(".")[0]
        owners = self.owners_of_module(top)
        named = [one for one in owners if normal(one.name) == normal(top)]
        return next(iter([*named, *owners]), None) or self.named(top)

    def owners_of_module(self, top: str) -> tuple[Distribution, ...]:
        """The distributions that have a top-level module."""
        return self._owners_of_tops.get(top, ())

    def of_file(self, file: str) -> Distribution | None:
        """The distribution that has a file, by the folder under its site folder."""
        for site in {one.site for one in self._distributions}:
            with suppress(ValueError):
                inner = Path(file).relative_to(site).parts
                return self.of_module(inner[0].partition(".")[0]) if inner else None
        return None

    def requirements(self, distribution: Distribution) -> Iterator[Requirement]:
        """What a distribution requires here, without its extras."""
        for need in requirements_here(distribution.place, self._runtime):
            installed = self.named(need.name)
            is_met = installed is not None and admits(need.specifier, installed.version)
            yield Requirement(text=need.text, name=need.name, installed=installed, is_met=is_met)

    def requirement_on(self, distribution: Distribution | None, name: str) -> Requirement | None:
        """What a distribution requires of another one."""
        if distribution is None:
            return None
        wanted = normal(name)
        return next((one for one in self.requirements(distribution) if one.name == wanted), None)

    def specifiers_on(self, name: str) -> Iterator[tuple[Distribution, str]]:
        """The distributions that require one, and what each requires of it, such as `>=0.7,<2`."""
        for one in self._distributions:
            for need in requirements_here(one.place, self._runtime):
                if need.name == normal(name):
                    yield one, need.specifier

    def files(self, distribution: Distribution) -> list[Listed]:
        """The files that a distribution lists."""
        return listed_files(self._runtime.target, distribution.place)

    @cached_property
    def _owners_of_tops(self) -> Mapping[str, tuple[Distribution, ...]]:
        owners: dict[str, list[Distribution]] = {}
        for one in self._distributions:
            for top in tops_of(self._runtime.target, one.place):
                owners.setdefault(top, []).append(one)
        return {top: tuple(several) for top, several in owners.items()}


def tops_of(target: Target, place: Path) -> list[str]:
    """The names of the modules that a distribution adds to the search path."""
    tops = dict.fromkeys(name for name in top_modules(target, place) if name.isidentifier())
    for file in listed_names(target, place):
        top, separator, _ = file.partition(os.sep)
        name = top if separator else _module_of(top)
        if name.isidentifier():
            tops.setdefault(name)
    return [*tops]


def _module_of(file: str) -> str:
    """The module in a file that lies directly in a site folder; "" if it is none."""
    stem, _, suffix = file.partition(".")
    return stem if suffix == "py" or suffix.endswith("so") else ""


def with_module(
    target: Target, distributions: Iterable[Distribution], module: str
) -> list[Distribution]:
    """The distributions that have a module, whose name may have dots: `metatensor.torch`."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    inner = "/".join(parts)
    starts = (f"{inner}/", f"{inner}.")
    owners = [one for one in distributions if parts[0] in tops_of(target, one.place)]
    exact = [
        one
        for one in owners
        if any(name.startswith(starts) for name in listed_names(target, one.place))
    ]
    return exact or (owners if len(parts) == 1 else [])
