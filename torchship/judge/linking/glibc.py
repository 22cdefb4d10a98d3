"""What a dynamic linker says of itself: `$LIB`, `$PLATFORM`, and its subfolders for processors.

glibc looks for a library in such subfolders as `glibc-hwcaps/x86-64-v3` before it looks in the
folder itself. Which ones those are depends on the processor, on glibc's version and on
variables. So glibc is asked, in a process that runs no program: it prints where it looks.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..machine.system import libc
from ..project import Record
from ..target import Target, once

#: The starts of all subfolders that glibc may search. Before 2.37 it searched others, too.
_SUBFOLDERS = (
    "glibc-hwcaps",
    "tls",
    "x86_64",
    "haswell",
    "xeon_phi",
    "avx512_1",
    "aarch64",
    "atomics",
)
#: Folders that need not exist, in which glibc is to say where it would look.
_OF_LIB = "/torch-doctor/lib"
_OF_PLATFORM = "/torch-doctor/platform"
_VARIABLES = ("GLIBC_TUNABLES", "LD_HWCAP_MASK")
_SECONDS = 10.0

_exists = os.path.exists


class LinkerFacts(Record, kw_only=True):
    """What a dynamic linker puts for its tokens, and where it looks first in each folder."""

    lib: str = ""  #: what stands for `$LIB`; "" if not known
    platform: str = ""  #: what stands for `$PLATFORM`; "" if not known
    subfolders: tuple[str, ...] = ()  #: such as `glibc-hwcaps/x86-64-v3`, the first one first


@once
def facts_of(_: Target, interpreter: str, program: Path) -> LinkerFacts:
    """Ask the dynamic linker `interpreter` of a program; no facts if it is not glibc's."""
    if libc() is None or libc()[0] != "glibc":  # type: ignore[index]
        return LinkerFacts()
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    variables["LD_DEBUG"] = "libs"
    variables["LD_LIBRARY_PATH"] = f"{_OF_LIB}/$LIB:{_OF_PLATFORM}/$PLATFORM"
    try:
        process = subprocess.run(
            [interpreter, "--list", str(program)],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return LinkerFacts()
    printed = os.fsdecode(process.stderr)
    search_path = re.search(r"search path=(\S+)\s+\(LD_LIBRARY_PATH\)", printed)
    return _parse(search_path[1].split(":")) if search_path else LinkerFacts()


def _parse(folders: Sequence[str]) -> LinkerFacts:
    """The facts in a search path: each folder comes after its subfolders."""
    of_lib = [folder for folder in folders if folder.startswith(f"{_OF_LIB}/")]
    of_platform = [folder for folder in folders if folder.startswith(f"{_OF_PLATFORM}/")]
    lib = of_lib[-1] if of_lib else ""
    inner = [folder.removeprefix(f"{lib}/") for folder in of_lib if folder != lib]
    return LinkerFacts(
        lib=lib.removeprefix(f"{_OF_LIB}/"),
        platform=of_platform[-1].removeprefix(f"{_OF_PLATFORM}/") if of_platform else "",
        subfolders=tuple(dict.fromkeys(inner)),
    )


@once
def has_subfolders(_: Target, folder: Path) -> bool:
    """Whether a folder may hold libraries for some processors alone."""
    return any(_exists(folder / name) for name in _SUBFOLDERS)


def is_in_subfolder(path: Path) -> bool:
    """Whether a library lies in a subfolder for some processors alone."""
    return path.parent.name in _SUBFOLDERS or path.parent.parent.name == _SUBFOLDERS[0]
