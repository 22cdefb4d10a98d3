"""Reason: the import compiles code, and what that takes is not found."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import NO_FIX, Finding
from ...judge.text import is_file, printable, quoted
from ...judge.words import codes
from .case import Case

_NOT_FOUND = re.compile(
    r"(?:^|[\s:])(?P<shell>[^\s:]{1,300}): (?:command )?not found"
    r"|No such file or directory: '(?P<file>[^']{1,300})'",
    re.MULTILINE,
)
_FAILS = re.compile(r"Error building extension|Error compiling objects for extension")
_FAULT = re.compile(
    r"^(?P<file>/[^:\n]{1,500}|[\w./-]{1,500}):(?P<line>\d{1,9}):(?:\d{1,9}:)? (?:fatal )?error: "
    r"(?P<what>.{1,500})$",
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
        fault = _FAULT.search(error.message) if _FAILS.search(error.message) else None
        if fault is not None:
            return _does_not_compile(case, fault)
    return None


def _does_not_compile(case: Case, fault: re.Match[str]) -> Finding:
    """The first of what the compiler minds."""
    where = f"{Path(fault['file']).name}:{fault['line']}"
    torch = f" with torch {case.runtime.torch.version}" if case.runtime.torch else ""
    package = case.subject
    words = f"install a release of {package.name if package else 'it'} whose code compiles{torch}"
    return case.finding(
        codes.COMPILES_AT_FIRST_USE,
        f"{package.name if package else case.seen.what} compiles its code when it is imported, "
        f"which fails{torch}: {where}: {fault['what'][:200]}",
        observed=fault[0].strip(),
        needed="code that compiles here",
        fix=fixes.other_release(words, package.name) if package else NO_FIX,
    )


def _no_ninja(case: Case) -> Finding:
    """ninja is missing, or lies in the folder of this Python, which is not on PATH."""
    folder = Path(case.runtime.target.executable()).parent
    is_here = is_file(folder / "ninja")
    where = f": it lies in {folder}, which is not on PATH" if is_here else " with ninja"
    return case.finding(
        codes.NO_NINJA,
        f"the import compiles code{where}" + ("" if is_here else ", which is not on PATH"),
        needed="ninja",
        fix=fixes.set_variable("PATH", f'{quoted(folder)}:"$PATH"')
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
        else fixes.in_words("set CXX to a C++ compiler that is installed"),
    )
