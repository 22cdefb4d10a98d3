"""Stamps: the inputs and outputs of a finished task, which runs again only if something changed.

Its code is an input, too: the function's file, and the modules that it imports. The `__init__.py`
of a package counts only if the package itself is imported, not if one of its modules is: it
re-exports code that the function never calls.
"""

import ast
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from release import PACKAGE, REPO
from release.paths import write_atomically

# Top-level packages of this checkout, and the folder that contains each.
PACKAGES = {"release": REPO / "scripts", "engine": PACKAGE}
_digests: dict[tuple[int, ...], str] = {}


def digest(path: Path, *, quick: bool = False) -> str:
    """The hash of a file's content, or of a folder's names, contents and links without byte code.

    With `quick`, a folder's hash is only over names and sizes: for an environment of gigabytes that
    is deleted before the run ends.
    """
    if path.is_dir():
        return _tree_digest(os.fspath(path), quick)
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


def _tree_digest(root: str, quick: bool) -> str:
    # No Path per file, which would be slow: an environment has tens of thousands of files.
    found = hashlib.sha256()
    for entry in _entries(root):
        if entry.is_symlink():
            what = os.fsencode(Path(entry.path).readlink())
        elif entry.is_dir():
            what = b""
        else:
            stat = entry.stat()
            what = str(stat.st_size if quick else _file_digest(entry.path, stat)).encode()
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
        """Whether every output except those in `without` still has the content of the task's run.

        For outputs in `quick`, it compares only names and sizes.
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
        """The stamp of `task`; None if its file is missing, incomplete or not a stamp."""
        try:
            return Stamp(**json.loads(self._file(task).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, task: str, stamp: Stamp) -> None:
        write_atomically(self._file(task), json.dumps(vars(stamp), indent=1))

    def forget(self, task: str) -> None:
        self._file(task).unlink(missing_ok=True)


def code_of(function: Callable[..., Any]) -> tuple[Path, ...]:
    """The function's own file and every file of this checkout that it imports, even indirectly."""
    inner = function.func if isinstance(function, partial) else function
    return closure(Path(inspect.getsourcefile(inner) or __file__))


@cache
def closure(file: Path) -> tuple[Path, ...]:
    found, waiting = {file}, [file]
    while waiting:
        new = _imported(waiting.pop()) - found
        found |= new
        waiting += new
    return tuple(sorted(found))


@cache
def _imported(file: Path) -> frozenset[Path]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [name for node in ast.walk(tree) for name in _names(node, file)]
    files = (path for name in names for path in (Path(f"{name}.py"), name / "__init__.py"))
    return frozenset(filter(Path.is_file, files))


def _names(node: ast.AST, file: Path) -> Iterator[Path]:
    """The modules that a statement may import, as paths without suffix."""
    if isinstance(node, ast.Import):
        yield from (_absolute(alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = file.parents[node.level - 1] if node.level else None
        parts = node.module.split(".") if node.module else []
        module = base.joinpath(*parts) if base else _absolute(node.module or "")
        yield module
        yield from (module / alias.name for alias in node.names)


def _absolute(name: str) -> Path:
    first, *rest = name.split(".")
    return PACKAGES.get(first, REPO / "outside").joinpath(first, *rest)
