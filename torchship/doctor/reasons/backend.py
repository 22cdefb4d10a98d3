"""Reason: `import torch` loads a backend of another package by itself, and that fails."""

from __future__ import annotations

import re

from ...judge import fixes
from ...judge.records import Finding
from ...judge.words import codes
from .case import Case

_BACKEND = re.compile(r"Failed to load the backend extension: (\S{1,100}?)\.?(?:\s|$)")
_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def backend_fails(case: Case) -> Finding | None:
    match = next(filter(None, (_BACKEND.search(error.message) for error in case.errors)), None)
    if match is None:
        return None
    inner = case.errors[1].last_line if len(case.errors) > 1 else "it does not say why"
    return case.finding(
        codes.BACKEND_FAILS,
        f"import torch loads the backend {match[1]} by itself, which fails: {inner}",
        needed=f"a backend {match[1]} that loads, or none",
        fix=fixes.set_variable(_VARIABLE, "0"),
    )
