"""Probe: what a package requires, surely imports, and does not find as it wants it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..judge import codes, fixes
from ..judge.interpreter import search_path
from ..judge.project import Record
from ..judge.records import REJECTED, Finding, Runtime
from ..judge.text import is_file, printable, read_regular
from .environment.installed import Distribution, installed
from .imports import surely_imported
from .requirements import requirements_here

_MAX_SOURCE = 1 << 20
#: The modules of distributions that are named otherwise.
_MODULES = {
    "beautifulsoup4": "bs4",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "protobuf": "google",
    "python-dateutil": "dateutil",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}


class BrokenRequirement(Record, kw_only=True):
    """A requirement of a package without which its import fails."""

    requirement: str  #: as pip takes it
    observed: str  #: what is here instead; "" if nothing is


def broken_requirements(package: str, place: Path, runtime: Runtime) -> Iterator[BrokenRequirement]:
    """The requirements in the metadata `place` without which `import package` surely fails."""
    here = _installed_here(search_path(), runtime.torch.root if runtime.torch else None)
    required = {}
    for need in requirements_here(place, runtime):
        if need.name != "torch":
            module = _MODULES.get(need.name, need.name.replace("-", "_"))
            required[module] = (need.name, need.text)
    missing = {
        module: (name, requirement)
        for module, (name, requirement) in required.items()
        if name not in here and not _is_found(module)
    }
    present = {module: pair for module, pair in required.items() if pair[0] in here}
    if missing:
        for module in surely_imported(package, place.parent, missing):
            yield BrokenRequirement(requirement=missing[module][1], observed="")
    if not present or not is_file(place.parent / package / "__init__.py"):
        return
    # Only what the package itself begins with: a longer way would be walked for nothing.
    taken = surely_imported(package, place.parent, present, most_modules=1)
    for module, names in taken.items():
        name, requirement = present[module]
        absent = _absent_names(module, names)
        if absent:
            version = here[name].version or "of an unknown version"
            yield BrokenRequirement(
                requirement=requirement, observed=f"{name} {version}, which has no {absent}"
            )


@cache
def _installed_here(entries: tuple[str, ...], torch: Path | None) -> Mapping[str, Distribution]:
    """The installed distributions, by normalized name."""
    sites = [Path(entry) for entry in entries if entry]
    return installed([*sites, torch.parent] if torch is not None else sites)


def finding_of(what: str, broken: Sequence[BrokenRequirement], runtime: Runtime) -> Finding:
    """The finding on the requirements that are broken, at least one.

    `what` is what fails, such as `import torch`.
    """
    missing = [printable(one.requirement) for one in broken if not one.observed]
    others = [
        f"{printable(one.requirement)}, but here is {printable(one.observed)}"
        for one in broken
        if one.observed
    ]
    if missing:
        which = "which is" if len(missing) == 1 else "which are"
        others.insert(0, f"{' and '.join(missing)}, {which} not installed")
    return Finding(
        dimension="requirements",
        status=REJECTED,
        code=codes.REQUIREMENT_NOT_MET,
        observed="; ".join(printable(one.observed) or "not installed" for one in broken),
        needed=" and ".join(printable(one.requirement) for one in broken),
        why=f"{what} fails: it requires {'; and '.join(others)}",
        fix=fixes.install_requirements(runtime.environment, *(one.requirement for one in broken)),
    )


def _is_found(module: str) -> bool:
    return _source(module) is not None


def _source(module: str) -> Path | None:
    """The file of a module, or of the first of its package; None if there is none."""
    for entry in search_path():
        place = Path(entry or ".", module)
        for file in (place / "__init__.py", place.with_name(f"{module}.py")):
            if is_file(file):
                return file
    return None


def _absent_names(module: str, names: frozenset[str]) -> str:
    """The first of the names that a module of one file does not hold; "" if none is missing."""
    file = _source(module)
    if file is None or file.name == "__init__.py":
        return ""
    with suppress(OSError):
        source = read_regular(file, _MAX_SOURCE).decode("utf-8", "replace")
        words = {*re.findall(r"\w+", source)}
        return next((name for name in sorted(names) if name != "*" and name not in words), "")
    return ""
