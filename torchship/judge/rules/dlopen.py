"""A rule about files that forbid what an import does: they were linked with `-z nodlopen`."""

from __future__ import annotations

from .. import fixes
from ..records import REJECTED, BinaryRecord, Finding, ForbidsDlopen, Runtime
from ..text import printable
from ..words.codes import Code
from .rule import NEEDS_LINKS, Rule

DLOPEN_FORBIDDEN = Code(
    "TD509",
    "The file was linked with -z nodlopen",
    why="The file was linked with `-z nodlopen`. The dynamic linker loads such a file only "
    "together with the program, and never for an import.",
    fix="Link the file without `-z nodlopen`, or install a release of its package that was. Until "
    "then, `LD_PRELOAD` with the path of the file loads it together with Python.",
)


def check_dlopen(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does a file forbid what an import does?"""
    faults = runtime.link_faults.get(str(binary.path), ())
    file = next((fault.file for fault in faults if isinstance(fault, ForbidsDlopen)), None)
    if file is None:
        return None
    name = printable(file.name)
    return Finding(
        status=REJECTED,
        code=DLOPEN_FORBIDDEN,
        observed=f"{name} is linked with -z nodlopen",
        needed="a file that dlopen may load",
        why=f"{name} was linked with -z nodlopen, so the dynamic linker refuses to import it",
        fix=fixes.fix_for(fixes.Wrong.BUILD, binary, runtime),
    )


DLOPEN = Rule(
    dimension="libraries", codes=(DLOPEN_FORBIDDEN,), check=check_dlopen, needs=(NEEDS_LINKS,)
)
