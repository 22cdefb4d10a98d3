"""The target: the Python whose environment is judged, and what was read of it.

It is made once, for the Python that runs or for one that the doctor has asked, and handed down:
to readers of files as an argument, to all others in the `Runtime`. What is read once in a run is
remembered by the target (`once`), so that no answer about one Python is given for another.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial, update_wrapper
from pathlib import Path
from typing import TypeVar, cast

from .budget import Budget
from .project import Record
from .reading.elf import MAGIC
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
    found_by: str = ""  #: how it was found, such as "named by --python"; "" for the one that runs


class Target:
    """A Python, as it would run in its environment, with the answers about its files and the
    budget that is left to find them.

    `python` is None for the Python that runs.
    """

    def __init__(self, python: Interpreter | None = None) -> None:
        self.python = python
        #: Of the run that reads now; every reader asks it.
        self.budget = Budget()
        #: For each function that `once` marks, itself with a memory of its own.
        self.answers: dict[Callable[..., object], Callable[..., object]] = {}

    def search_path(self) -> tuple[str, ...]:
        """Its `sys.path`."""
        return self.python.path if self.python else tuple(sys.path)

    @property
    def prefix(self) -> str:
        """The folder of its environment."""
        return self.python.prefix if self.python else sys.prefix

    @property
    def base_prefix(self) -> str:
        """The folder of the Python that its venv was made with."""
        return self.python.base_prefix if self.python else sys.base_prefix

    def own_folders(self) -> tuple[str, ...]:
        """The folders whose files it executes when it starts, and its prefix, which holds conda's
        metadata."""
        if self.python is not None:
            return (self.python.prefix, *self.python.sites)
        user = (site.getusersitepackages(),) if site.ENABLE_USER_SITE else ()
        return (sys.prefix, *site.getsitepackages(), *user)

    def library(self) -> frozenset[str]:
        """The modules of the standard library that its version has, by their first names; empty if
        it does not tell."""
        return frozenset(self.python.library if self.python else sys.stdlib_module_names)

    def executable(self) -> str:
        """Its file."""
        return self.python.executable if self.python else sys.executable

    def program(self) -> Path:
        """The program that runs as this Python.

        `sys.executable` may name a script that starts it, as under an emulator.
        """
        path = Path(self.executable())
        with suppress(OSError):
            if self.python is None and read_regular(path.resolve(), len(MAGIC)) != MAGIC:
                return Path(os.readlink("/proc/self/exe"))  # noqa: PTH115
        return path


_Function = TypeVar("_Function", bound=Callable[..., object])


def once(function: _Function) -> _Function:
    """A function whose first argument is a target, which remembers its answers."""

    def answer(target: Target, *arguments: object, **named: object) -> object:
        remembering = target.answers.get(function)
        if remembering is None:
            remembering = target.answers[function] = cache(partial(function, target))
        return remembering(*arguments, **named)

    return cast("_Function", update_wrapper(answer, function))
