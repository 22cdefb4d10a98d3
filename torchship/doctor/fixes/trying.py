"""Tries a fix beside the environment: in a folder that comes first on the path of one import."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from tempfile import TemporaryDirectory

from ..looking.look import Subject, look
from ..looking.processes import Python

_SECONDS_TO_INSTALL = 600
#: What would take gigabytes to try, and whose libraries other packages have loaded already.
_TOO_LARGE = ("torch", "nvidia-")
#: Options that make no sense in a folder of its own.
_DROPPED = {"--force-reinstall", "--upgrade", "-U", "--ignore-installed"}


def mends(command: str, module: str, python: Python) -> bool | None:
    """Whether the import of a module works with what a command of pip or uv installs.

    None if the command is not one that can be tried so, or if it fails here.
    """
    with TemporaryDirectory(prefix="torch-doctor-") as folder:
        words = [*words_into(command, folder)]
        if not words or not _runs(words):
            return None
        environ = {**os.environ, **_first_on_path(folder, os.environ)}
        seen = look([Subject(module=module)], python._replace(environ=environ)).packages.get(module)
        return None if seen is None else seen.works


def words_into(command: str, folder: str) -> Iterator[str]:
    """The words of a command that installs packages, with a folder to install into; none for
    another command."""
    words: list[str] = []
    with suppress(ValueError):
        words = shlex.split(command)
    is_pip = words[1:4] == ["-m", "pip", "install"]
    if not is_pip and words[:3] != ["uv", "pip", "install"]:
        return
    packages = [word for word in words[3:] if not word.startswith("-") and not _is_path(word)]
    if any(word.startswith(_TOO_LARGE[1]) or _name(word) == _TOO_LARGE[0] for word in packages):
        return
    yield from (word for word in words if word not in _DROPPED)
    yield from ("--target", folder)


def _name(requirement: str) -> str:
    return requirement.partition("=")[0].partition("<")[0].partition(">")[0].strip().lower()


def _is_path(word: str) -> bool:
    return word.startswith(("/", "."))


def _runs(words: list[str]) -> bool:
    try:
        process = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS_TO_INSTALL,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0


def _first_on_path(folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (folder, environ.get("PYTHONPATH", ""))))
    return {"PYTHONPATH": path}
