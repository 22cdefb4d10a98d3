"""Reason: an operator is not registered, since the library that registers it did not load."""

from __future__ import annotations

import re
from pathlib import Path

from ...judge.records import Finding
from ...judge.text import is_file, printable
from ...judge.words import codes
from ..checks.packages import get_its_binaries
from ..environment.owner import distributions, is_shared_object_name
from ..environment.standards import normal
from . import damaged
from .case import Case
from .linking import linker_refuses

_NO_OPERATOR = re.compile(
    r"operator \S{1,200} does not exist|Couldn't load custom C\+\+ ops"
    r"|'_OpNamespace' '\S{1,200}' object has no attribute"
    r"|No such operator"
)
_NAMESPACE = re.compile(r"operator (\w+)::|'_OpNamespace' '(\w+)'")


def operator_is_missing(case: Case) -> Finding | None:
    """The reason for which an extension of the package does not load by itself."""
    if not any(_NO_OPERATOR.search(error.message) for error in case.errors):
        return None
    for path, seen in case.extensions.items():
        alone = case._replace(seen=seen._replace(before=()))
        finding = damaged.files_are_damaged(alone) or linker_refuses(alone)
        if finding is not None:
            why = f"its operators are missing, since {path.name} does not load: {finding.why}"
            return finding._replace(why=printable(why))
    return _library_is_missing(case)


def _library_is_missing(case: Case) -> Finding | None:
    """The library that is to register the operators of the package is not there."""
    package = case.raiser
    namespaces = {m[1] or m[2] for e in case.errors if (m := _NAMESPACE.search(e.message))}
    if package is None or normal(package.name).replace("-", "_") not in namespaces:
        return None
    objects = [file for file in case.catalog.files(package) if _is_object(file.path)]
    gone = next((file.path for file in objects if not is_file(file.path)), None)
    if gone is not None:
        return damaged.file_is_gone(case, package, gone)
    if objects or distributions(case.runtime.target, package.site).get(package.place):
        return None
    return case.finding(
        codes.WITHOUT_ITS_OPS,
        f"{package.name} {package.version} was installed without the library that registers its "
        "operators",
        needed="its binaries",
        fix=get_its_binaries(package, case.runtime),
    )


def _is_object(path: Path) -> bool:
    return is_shared_object_name(path.name)
