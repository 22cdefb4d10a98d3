"""The Python whose environment is judged: this one, or another that the doctor has asked.

A process judges for one Python. It says which with `judge_for`, before it judges anything; by
default it is the Python that runs.
"""

from __future__ import annotations

import site
import sys
from contextlib import suppress
from pathlib import Path

from .elf import MAGIC
from .project import Record
from .text import read_regular


class Interpreter(Record, kw_only=True):
    """The facts of a Python, as it would run in its environment."""

    executable: str
    prefix: str
    base_prefix: str
    path: tuple[str, ...]  #: `sys.path` without the folder of the script
    sites: tuple[str, ...]  #: the folders whose `.pth` files it executes when it starts
    version: tuple[int, int, int]
    implementation: str
    free_threaded: bool
    machine: str
    #: Its C library as `confstr` tells it, such as `glibc 2.36`; None where there is no glibc.
    libc: str | None
    libstdcxx: Path | None  #: the file that it loads as libstdc++; None if not looked for or absent
    torch: Path | None  #: the folder of the torch that it imports; None if not looked for or absent
    #: The modules of the standard library of its version, whether its build has them or not; ()
    #: for a Python before 3.10, which does not tell.
    library: tuple[str, ...] = ()


_judged: Interpreter | None = None


def judged() -> Interpreter | None:
    """The Python that is judged; None for the one that runs the doctor."""
    return _judged


def judge_for(interpreter: Interpreter | None) -> None:
    """Judge the environment of this Python from now on; None for the one that runs the doctor."""
    global _judged
    _judged = interpreter


def search_path() -> tuple[str, ...]:
    """The `sys.path` of the judged Python."""
    return _judged.path if _judged else tuple(sys.path)


def prefixes() -> tuple[str, str]:
    """The prefix of the judged Python, and that of the Python that its venv was made with."""
    return (_judged.prefix, _judged.base_prefix) if _judged else (sys.prefix, sys.base_prefix)


def own_folders() -> tuple[str, ...]:
    """The folders whose files the judged Python executes when it starts, and its prefix, which
    holds conda's metadata."""
    if _judged is not None:
        return (_judged.prefix, *_judged.sites)
    user = (site.getusersitepackages(),) if site.ENABLE_USER_SITE else ()
    return (sys.prefix, *site.getsitepackages(), *user)


def library() -> frozenset[str]:
    """The modules of the standard library that the judged Python's version has, by their first
    names; empty if it does not tell."""
    return frozenset(_judged.library if _judged else sys.stdlib_module_names)


def executable() -> str:
    """The file of the judged Python."""
    return _judged.executable if _judged else sys.executable


def program() -> Path:
    """The program that runs as the judged Python.

    `sys.executable` may name a script that starts it, as under an emulator.
    """
    path = Path(executable())
    with suppress(OSError):
        if _judged is None and read_regular(path.resolve(), len(MAGIC)) != MAGIC:
            return Path("/proc/self/exe").readlink()
    return path
