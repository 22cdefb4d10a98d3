"""Reason: when Python starts, a file on its path imports a module from elsewhere, which then serves
instead of the one of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import is_file
from ...judge.words import codes
from ..environment.installed import module_at, module_in
from ..fixes.mending import leave_out, names_in_variable
from .case import Case

#: `cannot import name 'TypeIs' from 'typing_extensions' (/agent/vendor/typing_extensions.py)`.
_FROM_FILE = re.compile(r"from '(?P<module>[\w.]{1,300})' \((?P<file>/[^()]{1,1000}\.py)\)")
_RUN_AT_START = ("sitecustomize.py", "usercustomize.py")


def module_was_loaded_early(case: Case) -> Finding | None:
    for error in case.errors:
        match = _FROM_FILE.search(error.message)
        if match is None:
            continue
        top = match["module"].partition(".")[0]
        used = Path(match["file"])
        right = next(filter(None, (module_in(entry, top) for entry in _entries(case))), None)
        starting = next(_starting(case), None)
        if right is None or starting is None or right in (module_at(used), *used.parents):
            continue
        is_named = names_in_variable(starting.parent)
        since = ", which PYTHONPATH brings in," if is_named else ""
        return case.finding(
            codes.SOURCE_FOLDER,
            f"the module {top} was made of {used}, which is not on the path, before the one in "
            f"{right}: {starting}{since} runs whenever Python starts, and imports modules first",
            observed=str(used),
            needed=str(right),
            fix=leave_out(starting.parent)
            if is_named
            else fixes.in_words(f"keep {starting} from importing {top}, or remove it"),
        )
    return None


def _entries(case: Case) -> Iterator[Path]:
    yield case.folder
    yield from map(Path, filter(None, case.path))


def _starting(case: Case) -> Iterator[Path]:
    """The files with which a program's own modules can come before all others.

    Debian and others have one in the standard library too, which imports no such module.
    """
    for entry in _entries(case):
        if is_file(entry / "os.py"):
            continue
        yield from (entry / name for name in _RUN_AT_START if is_file(entry / name))
