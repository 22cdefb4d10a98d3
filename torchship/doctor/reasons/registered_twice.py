"""Reason: two libraries of one process register the same operators, or the same type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import read_regular, some
from ...judge.words import codes
from ..environment.owner import distributions
from .case import Case

_TWICE = re.compile(
    r"[Oo]nly a single TORCH_LIBRARY can be used to register the namespace (\w+)"
    r"|Tried to register an operator \((\w+)::"
    r"|same name and the same overload name multiple times"
)


#: pybind11 has one table of types for all extensions of a process.
_TYPE_TWICE = re.compile(r'generic_type: type "([^"]{1,200})" is already registered')
_LARGEST = 64 << 20


def type_is_registered_twice(case: Case) -> Finding | None:
    text = "\n".join([*(error.message for error in case.errors), case.seen.output])
    match = _TYPE_TWICE.search(text)
    if match is None:
        return None
    of_them = [*_with_type(case, match[1].rpartition(":")[2])][:4]
    where = f": {some([path.name if path.stem != '_C' else str(path) for path in of_them], 4)}"
    return case.finding(
        codes.REGISTERED_TWICE,
        f"two extensions of one process register the type {match[1]} with pybind11, which allows "
        f"one{where if len(of_them) > 1 else ''}",
        needed="one extension that registers it, or one with py::module_local()",
        fix=fixes.in_words(
            "do not import both into one process, or build one of them with py::module_local()",
        ),
    )


def _with_type(case: Case, name: str) -> Iterator[Path]:
    """The extensions here that hold a C++ type of this name and the code of pybind11."""
    target = case.runtime.target
    of_type = re.compile(rb"(?<!\d)%d%sE?\0" % (len(name), re.escape(name.encode())))
    for site in {Path(entry) for entry in case.path}:
        for path in (path for files in distributions(target, site).values() for path in files):
            with suppress(OSError):
                content = read_regular(path, _LARGEST, budget=target.budget)
                if b"pybind11" in content and of_type.search(content):
                    yield path


def operators_are_registered_twice(case: Case) -> Finding | None:
    texts = [error.message for error in case.errors]
    match = next(filter(None, map(_TWICE.search, [*texts, case.seen.output])), None)
    if match is None:
        return None
    namespace = next(filter(None, match.groups()), "")
    copies = _copies(case)
    what = f"the operators of {namespace}" if namespace else "an operator"
    where = f": {copies[0]} and {copies[1]}" if len(copies) > 1 else ""
    return case.finding(
        codes.REGISTERED_TWICE,
        f"{what} are registered twice in one process{where}",
        needed="one copy of the library that registers them",
        fix=fixes.in_words("remove one of the two copies, or do not import both into one process"),
    )


def _copies(case: Case) -> list[str]:
    """Two mapped files of one name, in two folders; an empty list if there are none."""
    first: dict[str, str] = {}
    for path in case.seen.mapped:
        name = Path(path).name
        other = first.setdefault(name, path)
        if other != path and any(Path(extension).name == name for extension in case.extensions):
            return [other, path]
    return []
