"""Stamps: what a finished task read and made, so that it runs again only when something changed."""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from release import REPO


def digest(path: Path, *, quick: bool = False) -> str:
    """The hash of a file's content, or of a folder's: names, contents, links; no byte code.

    `quick`: of the names and sizes in a folder, for an environment of gigabytes that is deleted
    before the run ends.
    """
    if path.is_dir():
        return _tree_digest(os.fspath(path), quick)
    stat = path.stat()
    return _file_digest(os.fspath(path), stat.st_size, stat.st_mtime_ns)


@cache
def _file_digest(path: str, size: int, _mtime: int) -> str:
    found = hashlib.sha256()
    with Path(path).open("rb", buffering=0) as file:
        while chunk := file.read(min(size, 1 << 20)):
            found.update(chunk)
    return found.hexdigest()


def _tree_digest(root: str, quick: bool) -> str:
    # No Path for each file: an environment has tens of thousands.
    found = hashlib.sha256()
    for entry in _entries(root):
        if entry.is_symlink():
            what = os.fsencode(Path(entry.path).readlink())
        elif entry.is_dir():
            what = b""
        else:
            stat = entry.stat()
            size, time = stat.st_size, stat.st_mtime_ns
            what = str(size if quick else _file_digest(entry.path, size, time)).encode()
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


def key_of(name: str, inputs: Iterable[Path], facts: Mapping[str, Any]) -> str:
    """The hash of everything that a task's result depends on."""
    lines = [name, json.dumps(facts, sort_keys=True, default=_plain)]
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

    def intact(self, *, without: Collection[Path] = (), quick: Collection[Path] = ()) -> bool:
        """Whether every output but `without` is there with the content that the task gave it.

        Of the outputs in `quick`, names and sizes are compared.
        """
        paths = {
            path: value for p, value in self.outputs.items() if (path := REPO / p) not in without
        }
        try:
            return all(digest(path, quick=path in quick) == paths[path] for path in paths)
        except OSError:
            return False


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, task: str) -> Path:
        return self.folder / f"{task.replace('/', '__')}.json"

    def read(self, task: str) -> Stamp | None:
        """The stamp of `task`; a missing, torn or foreign file counts as none."""
        try:
            return Stamp(**json.loads(self._file(task).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, task: str, stamp: Stamp) -> None:
        write_atomically(self._file(task), json.dumps(vars(stamp), indent=1))

    def forget(self, task: str) -> None:
        self._file(task).unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Writes a file beside it, then renames that: a reader sees the old text or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
