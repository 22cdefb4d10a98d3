"""Reason: a part of a package lies in an entry of the path in which Python does not seek it.

Several entries may each have a part of a package, unless one has a package of that name with code
of its own, or a `.pth` file makes the package and gives it its own folder alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding, Fix
from ...judge.text import is_file, list_names, printable, read_regular
from ...judge.words import codes
from ..environment.installed import module_in
from .case import Case

_NO_MODULE = re.compile(r"No module named '(?P<package>[\w.]{1,200})\.(?P<part>\w{1,200})'")


def part_is_left_out(case: Case) -> Finding | None:
    for error in case.errors:
        match = _NO_MODULE.search(error.message)
        if match is None:
            continue
        place = next(_places(case, match["package"], match["part"]), None)
        if place is None:
            continue
        top = match["package"].partition(".")[0]
        making = next(_making(case, top), None)
        before = _package_before(case, top, place)
        if making is None and before is None:
            continue
        who = f"{making} makes the package {top}" if making else f"{before} is the package {top}"
        return case.finding(
            codes.SOURCE_FOLDER,
            f"{who} for Python, without {place.parent}, where {match['part']} lies",
            observed=str(making or before),
            needed=f"a package {top} of all its parts",
            fix=_fix(case, making, top, place),
        )
    return None


def _places(case: Case, package: str, part: str) -> Iterator[Path]:
    """Where the path has a part of a package."""
    for entry in _entries(case):
        folder = entry.joinpath(*package.split("."))
        if module_in(folder, part):
            yield folder / part


def _entries(case: Case) -> Iterator[Path]:
    """The path, with the folder that a script or the program puts before it."""
    scripts = (error.frames[0].file for error in case.errors if error.frames)
    script = next((Path(file) for file in scripts if not case.catalog.of_file(file)), None)
    yield from dict.fromkeys(
        [script.parent if script and is_file(script) else case.folder]
        + [Path(entry) for entry in case.path if entry]
    )


def _making(case: Case, top: str) -> Iterator[Path]:
    """The `.pth` files that make a package by a line of code."""
    quoted = re.compile(rf"""['"]{re.escape(top)}['"]""")
    for entry in map(Path, filter(None, case.path)):
        for name in list_names(entry):
            if name.endswith(".pth"):
                with suppress(OSError):
                    content = read_regular(entry / name, budget=case.runtime.target.budget)
                    text = content.decode("utf-8", "replace")
                    if "__path__" in text and quoted.search(text):
                        yield entry / name


def _package_before(case: Case, top: str, place: Path) -> Path | None:
    """The package with code of its own that Python takes, if the part is not in it."""
    for entry in _entries(case):
        if is_file(entry / top / "__init__.py"):
            return entry / top if entry / top not in place.parents else None
    return None


def _fix(case: Case, making: Path | None, top: str, place: Path) -> Fix:
    if making is not None:
        return fixes.remove_file(making)
    first = next((entry for entry in _entries(case) if module_in(entry, top)), None)
    entries = [*_entries(case)]
    own = next((entry for entry in entries if entry in place.parents), None)
    if first is not None and own is not None and entries.index(own) < entries.index(first):
        return fixes.make_package(own / top)
    return fixes.in_words(f"put all parts of {printable(top)} into one folder of the path")
