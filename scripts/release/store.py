"""Stamps: the inputs and outputs of a finished task, which runs again only if something changed."""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from release import PACKAGE, REPO
from release.paths import write_atomically

_digests: dict[tuple[int, ...], str] = {}


def digest(path: Path) -> str:
    """The hash of a file's content, or of a folder's names, contents, links; no byte code."""
    if path.is_dir():
        return _tree_digest(os.fspath(path))
    return _file_digest(os.fspath(path), path.stat())


def _file_digest(path: str, stat: os.stat_result) -> str:
    # Environments share files by hard links, so cache hashes. Any change of a file changes ctime.
    which = stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns
    if which not in _digests:
        found = hashlib.sha256()
        with Path(path).open("rb", buffering=0) as file:
            while chunk := file.read(min(stat.st_size, 1 << 20)):
                found.update(chunk)
        _digests[which] = found.hexdigest()
    return _digests[which]


def _tree_digest(root: str) -> str:
    # No Path per file, which would be slow: an environment has tens of thousands of files.
    found = hashlib.sha256()
    for entry in _entries(root):
        if entry.is_symlink():
            what = os.fsencode(Path(entry.path).readlink())
        elif entry.is_dir():
            what = b""
        else:
            what = _file_digest(entry.path, entry.stat()).encode()
        found.update(os.fsencode(entry.path[len(root) :]) + b"\0" + what + b"\0")
    return found.hexdigest()


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    for entry in sorted(os.scandir(folder), key=attrgetter("name")):
        if entry.name != "__pycache__":
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)


def sources(pattern: str) -> tuple[Path, ...]:
    return tuple(sorted(path for path in REPO.glob(pattern) if path.is_file()))


def relative(path: Path) -> str:
    """The path inside the checkout, so that a build folder stays valid when the checkout moves."""
    return str(path.relative_to(REPO)) if path.is_relative_to(REPO) else str(path)


def code() -> tuple[Path, ...]:
    """The files of this tool, and of the engine."""
    return (*sources("scripts/release/*.py"), *sources(f"{PACKAGE.name}/engine/**/*.py"))


@cache
def tool() -> str:
    return hashlib.sha256("".join(map(digest, code())).encode()).hexdigest()


def key_of(name: str, inputs: Iterable[Path], facts: Mapping[str, Any]) -> str:
    """The hash of everything that a task's result depends on."""
    lines = [name, tool(), json.dumps(facts, sort_keys=True, default=_plain)]
    lines += [f"{relative(path)}\0{digest(path)}" for path in inputs]
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()


def _plain(value: object) -> str:
    return relative(value) if isinstance(value, Path) else str(value)


@dataclass(frozen=True)
class Stamp:
    """The record of one finished task: its key, the digest of each output, how long it took."""

    key: str
    outputs: dict[str, str]
    seconds: float

    @property
    def paths(self) -> list[Path]:
        return [REPO / path for path in self.outputs]

    def intact(self, *, without: Collection[Path] = ()) -> bool:
        """Whether all outputs except those in `without` still have the task's content."""
        found = ((path, self.outputs[relative(path)]) for path in self.paths if path not in without)
        try:
            return all(digest(path) == value for path, value in found)
        except OSError:
            return False


def stamp_file(folder: Path, task: str) -> Path:
    return folder / "stamps" / f"{task.replace('/', '__')}.json"


def read_stamp(folder: Path, task: str) -> Stamp | None:
    """The stamp of `task`; None if its file is missing, incomplete or not a stamp."""
    try:
        return Stamp(**json.loads(stamp_file(folder, task).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_stamp(folder: Path, task: str, stamp: Stamp) -> None:
    write_atomically(stamp_file(folder, task), json.dumps(vars(stamp), indent=1))
