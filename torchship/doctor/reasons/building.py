"""Reason: the import compiles code, and what that takes is not found."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from ...judge.fixes import cures, fixes
from ...judge.records import Finding
from ...judge.text import is_file, printable
from ...judge.words import codes
from .case import Case

_NOT_FOUND = re.compile(
    r"(?:^|[\s:])(?P<shell>[^\s:]{1,300}): (?:command )?not found"
    r"|No such file or directory: '(?P<file>[^']{1,300})'",
    re.MULTILINE,
)
_NO_NINJA = re.compile(r"Ninja is required to load C\+\+ extensions")
#: torch's own choice without CXX.
_COMPILER = "c++"


def tool_is_not_found(case: Case) -> Finding | None:
    if not case.compiles:
        return None
    for error in case.errors:
        if _NO_NINJA.search(error.message):
            return _no_ninja(case)
        for match in _NOT_FOUND.finditer(error.message):
            finding = _no_compiler(case, match["shell"] or match["file"])
            if finding is not None:
                return finding
    return None


def _no_ninja(case: Case) -> Finding:
    """ninja is missing, or lies in the folder of this Python, which is not on PATH."""
    folder = Path(case.runtime.target.executable()).parent
    is_here = is_file(folder / "ninja")
    where = f": it lies in {folder}, which is not on PATH" if is_here else " with ninja"
    return case.finding(
        codes.NO_NINJA,
        f"the import compiles code{where}" + ("" if is_here else ", which is not on PATH"),
        needed="ninja",
        fix=fixes.set_variable("PATH", f'{cures.quoted(folder)}:"$PATH"')
        if is_here
        else fixes.install_requirements(case.runtime.environment, "ninja"),
    )


def _no_compiler(case: Case, program: str) -> Finding | None:
    """The compiler that CXX names, or torch's own choice, is not on PATH."""
    named = os.environ.get("CXX", "")
    words = [_COMPILER]
    with suppress(ValueError):
        words = shlex.split(named) or words
    if program != words[0] or shutil.which(program):
        return None
    if not named:
        return case.finding(
            codes.HOST_COMPILER,
            f"the import compiles code, and {program} is not on PATH",
            needed="a C++ compiler",
            fix=fixes.by_apt("g++", "install a C++ compiler, as root: {command}"),
        )
    has_other = shutil.which(_COMPILER) is not None
    return case.finding(
        codes.HOST_COMPILER,
        f"the import compiles code, and CXX names {printable(program)}, which is not on PATH",
        observed=f"CXX={named}",
        needed="a C++ compiler",
        fix=fixes.unset("CXX")
        if has_other
        else cures.in_words(cures.BY_HAND, "set CXX to a C++ compiler that is installed"),
    )
