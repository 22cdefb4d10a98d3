"""Names, versions, requirements and tags of Python's packages, as `packaging` decides them.

The one that is installed is taken, or else the copy that pip has.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from ...judge.project import Record
from ...judge.records import Runtime, dotted
from ...judge.target import Target

try:
    from packaging import markers, requirements, specifiers, tags, utils, version
except ImportError:
    try:
        from pip._vendor.packaging import (  # type: ignore[no-redef]
            markers,
            requirements,
            specifiers,
            tags,
            utils,
            version,
        )
    except ImportError:
        raise ImportError(
            "torch-doctor needs the package `packaging`, which neither is installed nor comes "
            "with pip here. Install it with `python -m pip install packaging`, or use the "
            "one-file form torch-doctor.pyz, which holds it."
        ) from None

#: Longer texts than any real ones; no more of a hostile one is parsed.
_MAX_TEXT = 4000
#: The oldest glibc for which manylinux tags exist: its minor version.
_OLDEST_GLIBC, _OLDEST_GLIBC_OF_X86 = 17, 5
_TAGS_BEFORE_PEP_600 = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_SHORT_NAMES = {"pypy": "pp"}  #: of implementations, as tags begin
_LONG_NAMES = {"cpython": "CPython", "pypy": "PyPy", "graalpy": "GraalVM"}
Tag = tags.Tag


def normal(name: str) -> str:
    """The normalized name of a distribution."""
    return str(utils.canonicalize_name(name))


def is_same_version(one: str, other: str) -> bool:
    """Whether two versions are the same; `1.0` and `1.0.0` are."""
    try:
        return version.Version(one) == version.Version(other)
    except version.InvalidVersion:
        return one == other


def is_older(one: str, other: str) -> bool:
    """Whether a version is older than another; False if either is no version."""
    try:
        return version.Version(one) < version.Version(other)
    except version.InvalidVersion:
        return False


@lru_cache(maxsize=1024)
def _specifiers(text: str) -> specifiers.SpecifierSet | None:
    """A set of specifiers, in parentheses or not; None if it is malformed."""
    inner = text.strip()
    if inner.startswith("(") and inner.endswith(")"):
        inner = inner[1:-1]
    if len(inner) > _MAX_TEXT:
        return None
    with suppress(specifiers.InvalidSpecifier):
        return specifiers.SpecifierSet(inner)
    return None


def admits(specifier: str, release: str) -> bool:
    """Whether `specifier`, such as `>=2.9,<2.11`, admits this version. A malformed one admits
    all, and a version that is none is admitted by all: nothing is known then."""
    wanted = _specifiers(specifier)
    if wanted is None:
        return True
    try:
        return bool(wanted.contains(version.Version(release), prereleases=True))
    except version.InvalidVersion:
        return True


def combine(texts: Iterable[str]) -> str | None:
    """One specifier for what all of these admit, without the bounds that others imply; None if they
    admit no version together. A malformed one admits all."""
    parts = [part for text in texts for part in (_specifiers(text) or ())]
    whole = specifiers.SpecifierSet(",".join(map(str, parts)))
    if parts and not any(whole.contains(one, prereleases=True) for one in _around(parts)):
        return None
    exact = [part for part in parts if part.operator == "==" and "*" not in part.version]
    if exact:
        return str(max(exact, key=lambda part: len(part.version)))
    lower = [part for part in parts if part.operator in (">", ">=")]
    upper = [part for part in parts if part.operator in ("<", "<=")]
    kept = [part for part in parts if part not in (*lower, *upper)]
    if lower:
        kept.append(max(lower, key=lambda part: (version.Version(part.version), part.operator)))
    if upper:
        kept.append(min(upper, key=lambda part: (version.Version(part.version), part.operator)))
    return ",".join(sorted(set(map(str, kept))))


def _around(parts: Iterable[specifiers.Specifier]) -> Iterator[version.Version]:
    """The versions that specifiers name, and the next ones on either side: if any version is within
    all of them, one of these is."""
    for part in parts:
        with suppress(version.InvalidVersion):
            named = version.Version(part.version.removesuffix(".*"))
            yield named
            yield version.Version(f"{named.base_version}.0.0.1")
            numbers = [*named.release]
            while numbers and not numbers[-1]:
                numbers.pop()
            if numbers:
                yield version.Version(dotted((*numbers[:-1], numbers[-1] - 1, 99999)))


@lru_cache(maxsize=256)
def admits_of_minor(specifier: str, minor: tuple[int, int]) -> bool:
    """Whether `specifier` admits any release of a minor version: a final one, or one that it
    names. `<2.10.0a0` admits no 2.10."""
    wanted = _specifiers(specifier)
    if wanted is None:
        return True
    releases = (*_releases(minor), *_named_releases(wanted, minor))
    return any(wanted.contains(one, prereleases=True) for one in releases)


@lru_cache(maxsize=256)
def _releases(minor: tuple[int, int]) -> tuple[version.Version, ...]:
    return tuple(version.Version(f"{minor[0]}.{minor[1]}.{patch}") for patch in range(6))


def _named_releases(
    wanted: specifiers.SpecifierSet, minor: tuple[int, int]
) -> Iterator[version.Version]:
    """The releases of a minor version that specifiers name, and those right behind them."""
    for one in wanted:
        with suppress(version.InvalidVersion):
            named = version.Version(one.version.removesuffix(".*"))
            release = (*named.release, 0, 0)[:3]
            if release[:2] == minor:
                yield named
                yield version.Version(f"{named.base_version}.post99")
                yield version.Version(dotted((*minor, release[2] + 1)))


_STAR_OF_BOUND = re.compile(r"([<>]=? *\d[\d.]{0,50}?)\.\*")


class Need:
    """A requirement: `torch>=2.9; python_version < "3.12"`, or `flash-attn @ https://...`.

    Attributes:
        name: of the distribution, normalized.
        specifier: such as `<2.11,>=2.9`; "" for any version.
        extras: those that it wants of the distribution.
        text: the requirement as pip takes it, without its marker.
    """

    def __init__(self, parsed: requirements.Requirement) -> None:
        self.name = normal(parsed.name)
        self.specifier = str(parsed.specifier)
        self.extras = frozenset(map(normal, parsed.extras))
        extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
        source = f" @ {parsed.url}" if parsed.url else ""
        self._start = f"{parsed.name}{extras}"
        self.text = f"{self._start}{self.specifier}{source}"
        self._marker = parsed.marker

    @property
    def condition(self) -> str:
        """Its marker, such as `extra == "io"`; "" for one that always holds."""
        return str(self._marker or "")

    def within(self, specifier: str) -> str:
        """The requirement as pip takes it, with this specifier instead of its own."""
        return self._start + specifier

    def holds(self, variables: Mapping[str, str], extra: str = "") -> bool:
        """Whether its marker holds in a Python, with an extra or without one."""
        if self._marker is None:
            return True
        try:
            return bool(self._marker.evaluate({**variables, "extra": extra}))
        except (ValueError, RecursionError):  # such as a comparison of what is no version
            return False


@lru_cache(maxsize=4096)
def parse_need(line: str) -> Need | None:
    """A requirement as `Requires-Dist` has it; None if it is malformed."""
    if len(line) > _MAX_TEXT:
        return None
    # Older releases say `>=1.9.*`, which older installers took for `>=1.9`.
    for text in (line, _STAR_OF_BOUND.sub(r"\1", line)):
        with suppress(requirements.InvalidRequirement, RecursionError):
            return Need(requirements.Requirement(text))
    return None


class Python(Record):
    """What requirements and tags ask of a Python."""

    version: tuple[int, ...]
    implementation: str
    free_threaded: bool
    machine: str

    @classmethod
    def of(cls, runtime: Runtime) -> Python:
        return cls(runtime.python, runtime.implementation, runtime.free_threaded, runtime.machine)

    @classmethod
    def of_target(cls, target: Target) -> Python:
        judged = target.python
        if judged is not None:
            return cls(judged.version, judged.implementation, judged.free_threaded, judged.machine)
        is_free_threaded = "t" in getattr(sys, "abiflags", "")
        implementation = sys.implementation.name
        return cls(sys.version_info[:3], implementation, is_free_threaded, os.uname().machine)

    @property
    def variables(self) -> dict[str, str]:
        """What the variables of markers are, on this machine's system."""
        full = dotted(self.version)
        own = {name: str(value) for name, value in markers.default_environment().items()}
        return {
            **own,
            "implementation_name": self.implementation,
            "implementation_version": full,
            "platform_machine": self.machine,
            "platform_python_implementation": _LONG_NAMES.get(
                self.implementation, self.implementation
            ),
            "python_full_version": full,
            "python_version": dotted(self.version[:2]),
        }


def tags_of_wheel(file: str) -> frozenset[Tag]:
    """The tags in a wheel's file name. Raises ValueError if no wheel is named so."""
    if len(file) > _MAX_TEXT:
        raise ValueError("the name is too long")
    try:
        return frozenset(utils.parse_wheel_filename(file)[3])
    except (utils.InvalidWheelFilename, version.InvalidVersion) as error:
        raise ValueError(str(error)) from None


def tags_here(runtime: Runtime) -> frozenset[Tag]:
    """The tags of the wheels that an installer takes for the judged Python."""
    return _tags_of(Python.of(runtime), tuple(platforms_here(runtime)))


@lru_cache(maxsize=16)
def _tags_of(python: Python, platforms: tuple[str, ...]) -> frozenset[Tag]:
    version = python.version[:2]
    digits = f"{version[0]}{version[1]}"
    if python.implementation == "cpython":
        interpreter = f"cp{digits}"
        abi = f"{interpreter}{'t' if python.free_threaded else ''}"
        own = [*tags.cpython_tags(version, [abi], platforms)]
        if python.free_threaded:  # an old `packaging` knows no difference
            own = [tag for tag in own if tag.abi != "abi3"]
    else:
        interpreter = f"{_SHORT_NAMES.get(python.implementation, python.implementation)}{digits}"
        own = [*tags.generic_tags(interpreter, [], platforms)]
    return frozenset([*own, *tags.compatible_tags(version, interpreter, platforms)])


def fits_python(tag: str, python: Python) -> bool:
    """Whether a tag such as `cp311-cp311-linux_x86_64` is for this Python, on any platform."""
    pairs = {(one.interpreter, one.abi) for one in _tags_of(python, ("any",))}
    return any((one.interpreter, one.abi) in pairs for one in tags.parse_tag(tag))


def platforms_here(runtime: Runtime) -> Iterator[str]:
    """The platform tags of the judged Python, the nearest first."""
    libc, machine = runtime.libc, runtime.machine
    if runtime.system == "linux" and libc is not None and len(libc[1]) > 1:
        major, minor = libc[1][:2]
        if libc[0] == "glibc":
            is_x86 = machine in ("x86_64", "i686")
            oldest = _OLDEST_GLIBC_OF_X86 if is_x86 else _OLDEST_GLIBC
            for number in range(minor, oldest - 1, -1):
                yield f"manylinux_{major}_{number}_{machine}"
                if number in _TAGS_BEFORE_PEP_600:
                    yield f"{_TAGS_BEFORE_PEP_600[number]}_{machine}"
        elif libc[0] == "musl":
            for number in range(minor, -1, -1):
                yield f"musllinux_{major}_{number}_{machine}"
    yield f"{runtime.system}_{machine}"
