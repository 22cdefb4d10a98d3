"""Tries what a command installs beside the environment: in a folder that comes first on the path
of one import."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from ...judge.project import Record
from ...judge.target import Target
from ...judge.text import printable, some
from ..environment.metadata import core_of, places_in
from ..environment.standards import normal
from ..looking import progress
from ..looking.look import Subject, look
from ..looking.processes import Python

_SECONDS_TO_INSTALL = 600
#: What would take gigabytes to try, and whose libraries other packages have loaded already.
_TOO_LARGE = re.compile(r"torch|nvidia-.*|cuda-.*|triton")
#: Options that make no sense in a folder of its own.
_DROPPED = {"--force-reinstall", "--upgrade", "-U", "--ignore-installed"}
#: Options that are followed by a value.
_WITH_VALUE = {"--python", "--index-url", "--no-binary"}
_OF_UV = re.compile(r"^ *\+ (\S+?)==(\S+)", re.MULTILINE)
#: What pip, uv and their libraries say of a server to which there was no connection.
_NO_CONNECTION = re.compile(
    r"NewConnectionError|NameResolutionError|Max retries exceeded|TimeoutError|ProxyError"
    r"|SSLError|Connection refused|error sending request|dns error|[Tt]imed out"
)


class Release(Record, kw_only=True):
    """A release that an installer would install."""

    name: str  #: normalized
    version: str
    needs: tuple[str, ...] | None = None  #: what it requires; None if the installer does not tell


class Tried(Record, kw_only=True):
    """What came of a command."""

    mends: bool | None = None  #: whether the import works with what it installs; None: not tried
    releases: tuple[str, ...] = ()  #: of what it names, such as `einops 0.8.2`
    why_not: str = ""  #: why it was not tried


class Trial:
    """Imports a module beside what commands install; all of it ends after some seconds."""

    def __init__(self, module: str, python: Python, seconds: float = _SECONDS_TO_INSTALL) -> None:
        self._module = module
        self._python = python
        self._until = time.monotonic() + seconds
        self._failure = "the module was not found"  #: why there was no trial
        self._releases: tuple[str, ...] = ()  #: of the last trial
        self.installed: tuple[Release, ...] = ()  #: in the last trial, with what each requires

    def of_command(self, command: str) -> Tried:
        """Whether the import works with what a command installs."""
        words = words_of(command)
        if not words:
            return Tried(why_not="only commands of pip or uv that install packages are tried")
        if large := next(filter(_TOO_LARGE.fullmatch, map(_name_of, words)), ""):
            return Tried(why_not=_too_large(large))
        if "--no-deps" in words or any(map(_is_path, words[1:])):
            return self._told(self._works_with(words))
        releases = self.releases_of(command)
        if releases is None:
            return self._told(None)
        if large := next((r.name for r in releases if _TOO_LARGE.fullmatch(r.name)), ""):
            return Tried(why_not=_too_large(large))
        return self._told(self.works_beside(command, releases))

    def _told(self, mends: bool | None) -> Tried:
        if mends is not None:
            return Tried(mends=mends, releases=self._releases)
        return Tried(why_not=self._failure)

    def releases_of(self, command: str) -> tuple[Release, ...] | None:
        """What a command of pip or uv would install here; None if it cannot."""
        words = words_of(command)
        is_pip = words[1:2] == ["-m"]
        told = self._run([*words, "--dry-run", *(("-q", "--report", "-") if is_pip else ())])
        if told is None:
            return None
        if is_pip:
            return tuple(_told_by_pip(told.stdout))
        found = _OF_UV.findall(told.stderr)
        return tuple(Release(name=normal(name), version=version) for name, version in found)

    def works_beside(self, command: str, releases: Iterable[Release]) -> bool | None:
        """Whether the import works beside these releases, installed as a command says; None if one
        is too large to be tried, or cannot be installed."""
        releases = [*releases]
        if any(_TOO_LARGE.fullmatch(one.name) for one in releases):
            return None
        pins = [f"{one.name}=={one.version}" for one in releases]
        options = [*options_of(words_of(command))]
        return self._works_with([*options, *pins, "--no-deps"]) if pins else False

    def _works_with(self, words: Sequence[str]) -> bool | None:
        """Whether the import works with what an installer puts into a folder."""
        with TemporaryDirectory(prefix="torch-doctor-") as folder:
            kept = [word for word in words if word not in _DROPPED]
            process = self._run([*kept, "--target", folder])
            if process is None:
                return None
            self.installed = tuple(_installed_in(Path(folder)))
            self._releases = tuple(_named_by(words, self.installed))
            environ = {**os.environ, "PYTHONPATH": _first_on_path(folder)}
            python = self._python._replace(environ=environ)
            seen = look([Subject(module=self._module)], python).packages.get(self._module)
        if seen is None or seen.works or not _is_without_its_index(words, process):
            return None if seen is None else seen.works
        # Another index of pip's settings had the release, perhaps in another build.
        self._failure = _not_reached(words, some(self._releases))
        return None

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        """Run a command; None if it fails, or does not end in time."""
        asked = [word for word in words[words.index("install") + 1 :] if not word.startswith("-")]
        progress.show(f"trying {' '.join(asked)} in another folder")
        name = "pip" if words[1:2] == ["-m"] else "uv"
        left = self._until - time.monotonic()
        if left <= 0:
            self._failure = "the time for trying is over"
            return None
        try:
            process = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=left,
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            self._failure = f"{name} cannot install it here: {error}"
        except subprocess.TimeoutExpired:
            self._failure = f"{name} cannot install it here: it does not end"
        else:
            if process.returncode == 0:
                return process
            told = f"{process.stdout}\n{process.stderr}"
            said = f"{name} cannot install it here: {_last_word(process.stderr)}"
            self._failure = _not_reached(words) if _NO_CONNECTION.search(told) else said
        return None


def _last_word(text: str) -> str:
    """The last error that an installer tells, without a final point; at most a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)error|\u00d7", line)]
    return printable(next(reversed(errors or lines), "it fails")).removesuffix(".")[:200]


def _index_in(words: Sequence[str]) -> str:
    return next((after for before, after in pairwise(words) if before == "--index-url"), "")


def _is_without_its_index(words: Sequence[str], process: subprocess.CompletedProcess[str]) -> bool:
    """Whether a command ended well without the index that it names."""
    index = urlsplit(_index_in(words))
    lines = f"{process.stdout}\n{process.stderr}".splitlines()
    # What pip tells of a retry ends with the path, and what it tells of one host names it.
    named = [name for name in (index.hostname, index.path) if name]
    return any(_NO_CONNECTION.search(line) and any(n in line for n in named) for line in lines)


def _not_reached(words: Sequence[str], instead: str = "") -> str:
    """That the index of a command was not reached, and what does without it; `instead` is what
    was taken from another one, and does not mend."""
    index = _index_in(words)
    options = [*options_of(words)]
    wanted = next((word for word in words if word not in options), "the package")
    of_build = index.rstrip("/").rpartition("/")[2] if index else ""
    build = f", in the build {of_build}," if of_build else ""
    of_another = f", and {instead} of another index does not fix the import" if instead else ""
    return printable(
        f"{index or 'the index of packages'} was not reached{of_another}; a mirror of it will do, "
        f"or a wheel of {wanted}{build} that was fetched on another machine"
    )


def _named_by(words: Sequence[str], releases: Iterable[Release]) -> Iterator[str]:
    """The releases of what the words of a command name; of a file or a folder, all."""
    asked = {_name_of(word) for word in words}
    is_named = not any(map(_is_path, words[1:]))
    for release in releases:
        if release.name in asked or not is_named:
            yield printable(f"{release.name} {release.version}")


def _installed_in(folder: Path) -> Iterator[Release]:
    reader = Target()
    for place in sorted(places_in(folder)):
        if core := core_of(reader, place):
            yield Release(name=normal(core.name), version=core.version, needs=core.needs)


def _too_large(name: str) -> str:
    return f"it would install {name}, which is too large to be tried"


def words_of(command: str) -> list[str]:
    """The words of a command of pip or uv that installs packages; [] for another command."""
    with suppress(ValueError):
        words = shlex.split(command)
        is_pip = words[1:4] == ["-m", "pip", "install"]
        return words if is_pip or words[:3] == ["uv", "pip", "install"] else []
    return []


def _name_of(word: str) -> str:
    """The distribution that a word of a command asks for, if it is a requirement."""
    return normal(re.split(r"[=<>!~\[ ]", word)[0])


def options_of(words: Sequence[str]) -> Iterator[str]:
    """The words without the packages and files to install."""
    start = words.index("install") + 1
    yield from words[:start]
    for before, word in zip(words[start - 1 :], words[start:], strict=False):
        if word.startswith("-") or before in _WITH_VALUE:
            yield word


def _told_by_pip(told: str) -> Iterator[Release]:
    """What its report says that it would install."""
    with suppress(ValueError, KeyError, TypeError):
        report = json.loads(told[told.index("{") :])
        for one in report["install"]:
            core = one["metadata"]
            needs = tuple(map(str, core.get("requires_dist", ())))
            yield Release(name=normal(core["name"]), version=str(core["version"]), needs=needs)


def _is_path(word: str) -> bool:
    return word.startswith(("/", ".")) and os.path.exists(word)  # noqa: PTH110


def _first_on_path(folder: str) -> str:
    return os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH", ""))))
