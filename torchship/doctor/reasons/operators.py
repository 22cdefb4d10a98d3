"""Reason: an operator is not registered, since the library that registers it did not load."""

from __future__ import annotations

import re

from ...judge.records import Finding
from ...judge.text import printable
from .case import Case
from .linking import linker_refuses

_NO_OPERATOR = re.compile(
    r"operator \S{1,200} does not exist|Couldn't load custom C\+\+ ops"
    r"|'_OpNamespace' '\S{1,200}' object has no attribute"
    r"|No such operator"
)


def operator_is_missing(case: Case) -> Finding | None:
    """The reason for which an extension of the package does not load by itself."""
    if not any(_NO_OPERATOR.search(error.message) for error in case.errors):
        return None
    for path, seen in case.extensions.items():
        finding = linker_refuses(case._replace(seen=seen._replace(before=())))
        if finding is not None:
            why = f"its operators are missing, since {path.name} does not load: {finding.why}"
            return finding._replace(why=printable(why))
    return None
