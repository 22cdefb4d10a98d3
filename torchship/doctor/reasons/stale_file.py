"""Reason: Python takes a file that is left over, before the one that belongs to the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import is_file, list_names
from ...judge.words import codes
from .case import Case
from .linking import named_objects


def file_is_left_over(case: Case) -> Finding | None:
    """An object that no list of its package has, beside one of the same module that is listed."""
    for path in dict.fromkeys(named_objects(case)):
        package = case.catalog.of_file(str(path))
        if package is None:
            continue
        listed = {file.path for file in case.catalog.files(package)}
        others = [other for other in _same_module(path) if other in listed]
        if path in listed or not others:
            continue
        return case.finding(
            codes.FILE_OF_ANOTHER_BUILD,
            f"Python takes {path.name}, which {package.name} {package.version} did not install, "
            f"before {others[0].name}, which it did",
            observed=str(path),
            needed=str(others[0]),
            fix=fixes.remove_file(path),
        )
    return None


def _same_module(path: Path) -> Iterator[Path]:
    stem = path.name.partition(".")[0]
    for name in list_names(path.parent):
        is_same = name.partition(".")[0] == stem and name.endswith(".so")
        if is_same and name != path.name and is_file(path.parent / name):
            yield path.parent / name
