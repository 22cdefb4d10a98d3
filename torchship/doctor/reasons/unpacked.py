"""Reason: a wheel was only unpacked, so a part of it lies in its `.data` folder, off the path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import list_names
from ...judge.words import codes
from ..environment.installed import module_in
from ..fixes.mending import reinstall
from .case import Case

_NO_MODULE = re.compile(r"No module named '(\w{1,200})")
_SUFFIX = ".data"


def wheel_is_only_unpacked(case: Case) -> Finding | None:
    for error in case.errors:
        match = _NO_MODULE.search(error.message)
        place = next(_places(case, match[1]), None) if match else None
        if match is None or place is None:
            continue
        name = place.parents[1].name.removesuffix(_SUFFIX).partition("-")[0]
        package = case.catalog.named(name)
        again = reinstall(package, case.runtime) if package else None
        return case.finding(
            codes.PACKAGE_FILES,
            f"the wheel of {name} was unpacked and not installed: its module {match[1]} lies in "
            f"{place.parent}, which is not on the path",
            observed=str(place),
            needed=f"{match[1]} in a folder of the path",
            fix=again or fixes.in_words(f"install {name} with an installer"),
        )
    return None


def _places(case: Case, module: str) -> Iterator[Path]:
    """Where a module lies in the `.data` folders of wheels that were unpacked."""
    for entry in map(Path, filter(None, case.path)):
        for name in list_names(entry):
            for scheme in ("purelib", "platlib") if name.endswith(_SUFFIX) else ():
                if module_in(entry / name / scheme, module):
                    yield entry / name / scheme / module
