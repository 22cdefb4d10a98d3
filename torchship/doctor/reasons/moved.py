"""Reason: an editable install points to a folder that is no longer there."""

from __future__ import annotations

import os
import re

from ...judge import fixes
from ...judge.records import Finding
from ...judge.words import codes
from ..environment.metadata import origin_of
from .case import Case

_NO_MODULE = re.compile(r"No module named '([\w.]{1,300})'")


def folder_has_moved(case: Case) -> Finding | None:
    for error in case.errors:
        match = _NO_MODULE.search(error.message)
        if match is None:
            continue
        top = match[1].partition(".")[0]
        is_its_own = top == case.seen.what.partition(".")[0]
        package = case.catalog.of_module(top) or (case.subject if is_its_own else None)
        origin = origin_of(case.runtime.target, package.place) if package else None
        if package is None or origin is None or not origin.is_editable or origin.folder is None:
            continue
        if not os.path.isdir(origin.folder):  # noqa: PTH112  # Path.is_dir raises
            return case.finding(
                codes.PACKAGE_FILES,
                f"{package.name} {package.version} is installed editable from {origin.folder}, "
                "which is not there",
                observed=str(origin.folder),
                needed="the folder of its sources",
                fix=fixes.in_words(
                    "put the folder back, or install the package as editable from where it lies now"
                ),
            )
    return None
