"""Reason: a shared object lies in a zip archive, out of which the dynamic linker opens nothing."""

from __future__ import annotations

import re
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import is_file, printable
from ...judge.words import codes
from ..environment.archives import names_in
from .case import Case

_MISSING = re.compile(
    r"No module named '(?P<module>[\w.]{1,300})'"
    r"|cannot import name '(?P<name>\w{1,200})' from (?:partially initialized module )?"
    r"'(?P<from>[\w.]{1,300})'"
)


def object_lies_in_an_archive(case: Case) -> Finding | None:
    for error in case.errors:
        match = _MISSING.search(error.message)
        frame = error.frames[-1] if error.frames else None
        archive = _archive_of(frame.file) if frame else None
        if match is None or archive is None:
            continue
        module = match["module"] or f"{match['from']}.{match['name']}"
        member = _object_in(archive, module)
        if member:
            return case.finding(
                codes.MODULE_MISSING,
                f"{module} lies in the archive {archive} ({printable(member)}), and Python cannot "
                "load a shared object out of an archive",
                observed=str(archive),
                needed="a folder",
                fix=fixes.in_words(
                    f"unpack {printable(str(archive))} into a folder, and put that folder on the "
                    "path in its place",
                ),
            )
    return None


def _archive_of(file: str) -> Path | None:
    """The archive in which a file of Python's lies; None if it lies in a folder."""
    return next((one for one in Path(file).parents if is_file(one)), None)


def _object_in(archive: Path, module: str) -> str:
    """The member of an archive that is the shared object of a module; "" if there is none."""
    start = f"{module.replace('.', '/')}."
    names = (name for name in names_in(archive) if name.endswith(".so"))
    return next((name for name in names if name.startswith(start)), "")
