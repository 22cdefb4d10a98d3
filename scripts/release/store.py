"""Stamps: what a finished task read and made, so that it runs again only when something changed.

It reads its code, too: the function's file, and what that imports. The `__init__.py` of a package
counts only where the package itself is imported, not on the way to one of its modules: it
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

# Top-level packages of this checkout, and the folder that each lies in.
PACKAGES = {"release": REPO / "scripts", "engine": PACKAGE}
_digests: dict[tuple[int, ...], str] = {}


def digest(path: Path, *, quick: bool = False) -> str:
    """The hash of a file's content, or of a folder's: names, contents, links; no byte code.

    `quick`: of the names and sizes in a folder, for an environment of gigabytes that is deleted
    before the run ends.
    """
    if path.is_dir():
        return _tree_digest(os.fspath(path), quick)
    return _file_digest(os.fspath(path), path.stat())


def _file_digest(path: str, stat: os.stat_result) -> str:
    # Environments share files by hard links. Any change of a file changes its ctime.
    which = stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns
    if which not in _digests:
        found = hashlib.sha256()
        with Path(path).open("rb", buffering=0) as file:
            while chunk := file.read(min(stat.st_size, 1 << 20)):
                found.update(chunk)
        _digests[which] = found.hexdigest()
    return _digests[which]


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
