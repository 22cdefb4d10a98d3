"""The torch minors that a distribution was built for, by what it says itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

from ...judge.reading.named_torch import Minor
from ...judge.records import parse_minor
from ...judge.target import Target
from ...judge.text import list_names, printable, read_regular, read_table
from . import conda_versions
from .metadata import Core
from .standards import Python, admits_of_minor, normal, parse_need

_PAIRS = "pairs.json"
#: More minors of torch 1 and 2 than there will be; (0, 4) stands for older torch, (3, 0) for newer.
_MINORS = [(0, 4), *((1, n) for n in range(14)), *((2, n) for n in range(100)), (3, 0)]
_OF_TORCH_IN_CONDA = ("pytorch", "libtorch")


def torch_requirements(core: Core, python: Python) -> list[str]:
    """What a distribution of pip's requires of torch in this Python, such as `>=2.9`, without
    extras, or the parentheses that older tools wrote around it."""
    needs = (parse_need(line) for line in core.needs)
    of_torch = [need for need in needs if need is not None and need.name == "torch"]
    variables = python.variables if of_torch else {}
    return [need.specifier.strip(" ()") for need in of_torch if need.holds(variables)]


def minors_pinned(core: Core, python: Python, *, by_conda: bool) -> Iterator[tuple[Minor, str]]:
    """Only a pin to one minor counts: `==2.9.1`, `<2.10,>=2.9` or conda's `2.9.* cuda*`."""
    if by_conda:
        parsed = map(conda_versions.parse, core.needs)
        pins = [one.versions for one in parsed if one and one.name in _OF_TORCH_IN_CONDA]
        admits = conda_versions.admits_of_minor
    else:
        pins = torch_requirements(core, python)
        admits = admits_of_minor
    for pin in pins:
        admitted = list(islice((minor for minor in _MINORS if admits(pin, minor)), 2))
        if len(admitted) == 1:
            yield admitted[0], f"its metadata ({printable(pin)})"


def minors_released(
    releases: Mapping[Minor, str], name: str, version: str
) -> Iterator[tuple[Minor, str]]:
    """The minors that a well-known package's release goes with."""
    for minor, versions in releases.items():
        if any(f"{version}.".startswith(f"{release}.") for release in versions.split()):
            yield minor, f"the list of releases ({printable(name)} {printable(version)})"


def minors_named_beside(target: Target, folders: Iterable[str]) -> Iterator[tuple[Minor, str]]:
    """The torch minors that a `*version*.py` or a `cpp_lib.json` beside the binaries names."""
    version = re.compile(r"""\b(?:py)?torch(?:_version)?["']?\s*[:=]\s*["'](\d+\.\d+)""")
    for file in _version_files(target, folders):
        with suppress(OSError):
            content = read_regular(file, budget=target.budget).decode("utf-8", "replace")
            assigned = version.search(content)
            minor = parse_minor(assigned[1]) if assigned else None
            if minor:
                yield minor, f"its {printable(file.name)}"


def _version_files(target: Target, folders: Iterable[str]) -> Iterator[Path]:
    for folder in sorted(folders):
        names = list_names(folder)
        target.budget.take(sum(map(len, names)))
        for name in names:
            if name == "cpp_lib.json" or ("version" in name and name.endswith(".py")):
                yield Path(folder, name)


def paired_releases(distribution: str) -> Mapping[Minor, str]:
    """The releases of a distribution that go with each torch minor, the best one first."""
    return _pairs().get(normal(distribution), {})


def has_sdist(distribution: str) -> bool:
    """Whether the releases of a distribution on PyPI are known to hold sources that compile with
    torch and its tools alone."""
    return normal(distribution) in _with_sdists()


@cache
def _with_sdists() -> frozenset[str]:
    """The distributions for which `has_sdist` is true.

    The builds of flash-attn and others like it import packages that their metadata does not name,
    and take hours, so no test has carried out a command that compiles them.
    """
    names = read_table(__package__, _PAIRS).get("sdists", ())
    return frozenset(name for name in names if isinstance(name, str))


@cache
def _pairs() -> Mapping[str, Mapping[Minor, str]]:
    """The releases of each distribution that go with each torch minor, the best one first."""
    rows = read_table(__package__, _PAIRS).get("releases", {})
    return {n: {parse_minor(key) or (0, 0): row[key] for key in row} for n, row in rows.items()}
