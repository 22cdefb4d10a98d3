"""Reason: Python takes another file than the one that is meant, since its folder comes first."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding, Fix
from ...judge.text import is_file, list_names, printable
from ...judge.words import codes
from ..environment.installed import SITE_NAMES, Distribution, module_at
from ..fixes.mending import leave_out, move_away
from .case import Case

_NAMES_MODULE = re.compile(r"module '(\w+)|(?:from|import) '(\w+)|'(\w+)' is not a package")
#: This Python is the first that PYTHONSAFEPATH keeps from importing out of the working folder.
_FIRST_WITH_SAFE_PATH = (3, 11)


def torch_is_hidden(case: Case) -> Finding | None:
    """A file or folder named torch comes before the installed torch on the path."""
    is_of_torch = case.seen.what == "torch" and case.seen.works
    if not is_of_torch and not any("torch" in error.message for error in case.errors):
        return None
    first = next(_places(case, "torch"), None)
    torch = case.runtime.torch
    if first is None or (torch is not None and _is_same(first, torch.root)):
        return None
    if _is_pytorch(first) and not _is_in_frames(case, first):
        return None
    return case.finding(
        codes.TORCH_SHADOWED,
        f"{first} hides the installed torch: Python imports it",
        observed=str(first),
        needed="no file and no folder named torch before the installed torch",
        fix=move_away(first),
    )


def module_is_hidden(case: Case) -> Finding | None:
    """A file hides a module of the standard library, or a source folder an installed package."""
    for name in _names_involved(case):
        places = [*_places(case, name)]
        if not places:
            continue
        if name in sys.builtin_module_names:
            continue  # no file can hide it
        if name in sys.stdlib_module_names and not _is_of_library(places[0], name):
            return case.finding(
                codes.LIBRARY_SHADOWED,
                f"{places[0]} hides the module {name} of the standard library",
                observed=str(places[0]),
                needed=f"no file and no folder named {name} before the standard library",
                fix=_unhide(places[0], case),
            )
        package = case.catalog.of_module(name)
        if package is None or name in sys.stdlib_module_names:
            continue
        installed = package.site / name
        if _is_same(places[0].parent, package.site) or not is_file(installed / "__init__.py"):
            continue
        if _is_same(places[0], installed) or not _is_in_frames(case, places[0]):
            continue
        return _in_front(case, places[0], package)
    return None


def behind(case: Case, place: Path, package: Distribution | None) -> Finding:
    """The finding on an object that is not reached, since a module without objects is before it."""
    return _in_front(case, place, package, lacks=", and lacks its binaries")


def empty_in_front(case: Case, place: Path, package: Distribution) -> Finding:
    """The finding on a folder without code that Python takes for an installed package."""
    return _in_front(case, place, package, lacks=", and has no code")


def _in_front(case: Case, place: Path, package: Distribution | None, *, lacks: str = "") -> Finding:
    """A module that hides the installed package of its name."""
    name = f"{package.name} {package.version}" if package else "package"
    is_here = _is_same(place.parent, case.folder)
    return case.finding(
        codes.SOURCE_FOLDER,
        f"{place} hides the installed {name}{lacks}: Python imports it "
        + ("for programs of this folder" if is_here else "since its folder comes first"),
        observed=str(place),
        needed=f"the installed package in {package.site}" if package else "the installed package",
        fix=_leave_out(place, case, is_here=is_here),
    )


def _names_involved(case: Case) -> Iterator[str]:
    """The top-level modules that the errors name, or that lie on their way."""
    names: dict[str, None] = {}
    for error in case.errors:
        for match in _NAMES_MODULE.finditer(error.message):
            names.setdefault(next(filter(None, match.groups())))
        if error.name:
            names.setdefault(error.name.partition(".")[0])
    for frame in case.frames():
        for folder in (case.folder, *map(Path, case.path)):
            if frame.file.startswith(f"{folder}{os.sep}"):
                inner = frame.file[len(str(folder)) + 1 :]
                names.setdefault(inner.partition(os.sep)[0].partition(".")[0])
    names.setdefault(case.seen.what.partition(".")[0])
    yield from (name for name in names if name.isidentifier())


def _places(case: Case, name: str) -> Iterator[Path]:
    """What Python can import under a name, in its order: a file, or the folder of a package."""
    for told in case.places.get(name, ())[:1]:
        yield module_at(told)
    leaves_out = case.runtime.python[:2] >= _FIRST_WITH_SAFE_PATH and os.environ.get(
        "PYTHONSAFEPATH"
    )
    entries = [] if leaves_out else [case.folder]
    for entry in (*entries, *map(Path, filter(None, case.path))):
        objects = [one for one in list_names(entry) if re.fullmatch(rf"{name}\.(.+\.)?so", one)]
        if is_file(entry / name / "__init__.py"):
            yield entry / name
        elif objects:
            yield entry / objects[0]
        elif is_file(entry / f"{name}.py"):
            yield entry / f"{name}.py"


def _is_pytorch(place: Path) -> bool:
    return is_file(place / "version.py") or is_file(place / "torch_version.py")


def _is_of_library(place: Path, name: str) -> bool:
    """Whether a module lies in the standard library, whose folder has another of its modules."""
    other = "os.py" if name != "os" else "abc.py"
    return is_file(place.parent / other) or place.parent.name == "lib-dynload"


def _is_in_frames(case: Case, place: Path) -> bool:
    """Whether the errors come out of a file or a folder, or name it."""
    start = str(place)
    files = [frame.file for frame in case.frames()]
    files += [case.seen.file, *(error.path for error in case.errors)]
    named = any(start in error.message for error in case.errors)
    named = named or any(error.name.startswith(f"{place.stem}.") for error in case.errors)
    return named or any(file == start or file.startswith(f"{start}{os.sep}") for file in files)


def _is_same(path: Path, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def _unhide(place: Path, case: Case) -> Fix:
    """Give a file another name; one of a package stays, and its folder is left out."""
    if is_file(place.parent / "__init__.py") and _is_same(place.parent, case.folder):
        return _leave_out(place, case, is_here=True)
    return move_away(place)


def _leave_out(place: Path, case: Case, *, is_here: bool) -> Fix:
    if place.parent.name in SITE_NAMES:
        return fixes.in_words(f"remove {printable(str(place))}, or give it another name")
    if not is_here:
        return leave_out(place.parent)
    if case.runtime.python[:2] < _FIRST_WITH_SAFE_PATH:
        return fixes.in_words("start Python in another folder")
    setting = fixes.set_variable("PYTHONSAFEPATH", "1")
    return fixes.command_in_words(
        fixes.Kind.SET_VARIABLE,
        "start Python in another folder, or keep this one off its path: {command}",
        setting.command,
    )
