"""Other environments than the judged one: active ones, and the one in which it was made."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...judge.project import Record
from ...judge.target import Target
from ...judge.text import is_file, list_names, read_regular
from .installed import SITE_NAMES, module_in

_MADE_BY = re.compile(r"^command *= *(.{1,2000})$", re.MULTILINE)
_SEES_THE_SYSTEMS = re.compile(
    r"^include-system-site-packages *= *true", re.MULTILINE | re.IGNORECASE
)


class Elsewhere(Record, kw_only=True):
    """Another environment that has a module."""

    prefix: Path
    is_parent: bool  #: whether the judged one was made by its Python, to see its base's packages

    @property
    def bin(self) -> Path:
        return self.prefix / "bin"


def environment_with(target: Target, *modules: str) -> Elsewhere | None:
    """Another environment that has these modules, by its files."""
    own = os.path.realpath(target.prefix)
    parent = _parent(Path(target.prefix))
    for prefix in dict.fromkeys((*filter(None, (parent,)), *_active())):
        if os.path.realpath(prefix) != own and all(_has(prefix, module) for module in modules):
            return Elsewhere(prefix=prefix, is_parent=prefix == parent)
    return None


def _parent(prefix: Path) -> Path | None:
    """The environment whose Python made this one with the packages of the system."""
    with suppress(OSError):
        config = read_regular(prefix / "pyvenv.cfg", 10_000).decode("utf-8", "replace")
        match = _MADE_BY.search(config)
        if match and _SEES_THE_SYSTEMS.search(config):
            with suppress(ValueError):
                return Path(shlex.split(match[1])[0]).parents[1]
    return None


def _active() -> Iterator[Path]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.path.isabs(folder) and is_file(Path(folder, "python")):  # noqa: PTH117
            yield Path(folder).parent


def _has(prefix: Path, module: str) -> bool:
    for name in list_names(prefix / "lib"):
        for site in SITE_NAMES if name.startswith("python") else ():
            if module_in(prefix / "lib" / name / site, module):
                return True
    return False
