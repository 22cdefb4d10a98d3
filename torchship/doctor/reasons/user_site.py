"""Reason: a module is among the user's own packages, which this Python leaves out."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding, dotted
from ...judge.words import codes
from ..environment.catalog import tops_of
from ..environment.installed import distributions_in, module_in
from ..fixes.mending import install
from .case import Case

_NO_MODULE = re.compile(r"No module named '(\w{1,200})'")
_VARIABLE = "PYTHONNOUSERSITE"


def module_is_the_user_s(case: Case) -> Finding | None:
    """`pip install --user` puts packages into the home folder, and so does pip where it may not
    write elsewhere."""
    folder = _folder(case)
    target = case.runtime.target
    is_virtual = target.prefix != target.base_prefix
    if not (is_virtual or os.environ.get(_VARIABLE)) or folder is None or str(folder) in case.path:
        return None
    for error in case.errors:
        match = _NO_MODULE.search(error.message)
        if match is None or module_in(folder, match[1]) is None:
            continue
        there = distributions_in(target, folder)
        has_it = [one for one in there if match[1] in tops_of(target, one.place)]
        since = "a virtual environment makes" if is_virtual else f"{_VARIABLE} makes"
        fix = fixes.in_words(f"install what has {match[1]} into {target.prefix}")
        if not is_virtual:
            fix = fixes.unset(_VARIABLE)
        elif has_it:
            fix = install(case.runtime, has_it[0].name)
        return case.finding(
            codes.MODULE_MISSING,
            f"{match[1]} is installed for the user, in {folder}, and {since} this Python leave "
            "the user's own packages out",
            observed=str(folder),
            needed=match[1],
            fix=fix,
        )
    return None


def _folder(case: Case) -> Path | None:
    """Where the user's own packages for this version of Python are."""
    base = os.environ.get("PYTHONUSERBASE", "")
    with suppress(RuntimeError):  # there is no home folder
        home = Path(base) if base else Path.home() / ".local"
        return home / "lib" / f"python{dotted(case.runtime.python[:2])}" / "site-packages"
    return None
