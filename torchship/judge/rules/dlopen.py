"""A rule about files that forbid what an import does: they were linked with `-z nodlopen`."""

from __future__ import annotations

from .. import fixes
from ..records import REJECTED, BinaryRecord, Finding, Runtime
from ..text import printable
from ..words.codes import Code, Message
from .rule import NEEDS_LINKS, Rule, files_of

DLOPEN_FORBIDDEN = Code(
    "TD509",
    "The file was linked with -z nodlopen",
    why="The file was linked with `-z nodlopen`. The dynamic linker loads such a file only "
    "together with the program, and never for an import.",
    fix="Link the file without `-z nodlopen`, or install a release of its package that was. Until "
    "then, `LD_PRELOAD` with the path of the file loads it together with Python.",
)
MESSAGE = Message(
    "_C.so: shared object cannot be dlopen()ed", DLOPEN_FORBIDDEN, r"cannot be dlopen\(\)ed"
)


def check_dlopen(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does a file forbid what an import does?"""
    headers = files_of(binary, runtime)
    file = next((path for path, header in headers.items() if header.forbids_dlopen), None)
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
    rank=640,
    dimension="libraries",
    codes=(DLOPEN_FORBIDDEN,),
    check=check_dlopen,
    messages=(MESSAGE,),
    needs=(NEEDS_LINKS,),
    asks_object=True,
)
