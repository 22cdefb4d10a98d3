"""Reason: a module of the project lies beside the path: of a script, Python takes its folder alone,
not the one in which it is started, nor the one above."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import is_file, list_names, quoted
from ...judge.words import codes
from ..environment.installed import module_in
from .case import Case

_NO_MODULE = re.compile(r"No module named '(\w{1,200})(?:\.[\w.]{1,300})?'")
#: Of the folder of the script.
_MOST_PARENTS = 3


def module_lies_beside_the_path(case: Case) -> Finding | None:
    for error in case.errors:
        match = _NO_MODULE.search(error.message)
        script = Path(error.frames[0].file) if error.frames else None
        if match is None or script is None or not is_file(script):
            continue
        if case.catalog.of_file(str(script)) or case.catalog.of_module(match[1]):
            continue
        entries = [str(script.parent), *filter(None, case.path)]
        on_path = {os.path.realpath(entry) for entry in entries}
        if any(_has(Path(entry), match[1]) for entry in on_path):
            continue
        place = next((one for one in _near(case, script) if _has(one, match[1])), None)
        if place is not None and os.path.realpath(place) not in on_path:
            return case.finding(
                codes.MODULE_MISSING,
                f"{match[1]} lies in {place}, which is not on the path: of a script, Python takes "
                f"the folder that it lies in, {script.parent}",
                observed=str(script.parent),
                needed=str(place),
                fix=fixes.set_variable("PYTHONPATH", quoted(place)),
            )
    return None


def _near(case: Case, script: Path) -> Iterator[Path]:
    yield case.folder
    yield from [*script.absolute().parent.parents][:_MOST_PARENTS]


def _has(folder: Path, name: str) -> bool:
    """Whether a folder has a module, also one without an `__init__.py`."""
    is_module = module_in(folder, name) is not None
    return is_module or any(one.endswith(".py") for one in list_names(folder / name))
