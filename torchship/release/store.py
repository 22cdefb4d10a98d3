"""Identifies what a build depends on: the commit, files by their hashes, and finished tasks."""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..builder import sources as engine_sources
from . import PROJECT, REPO
from .paths import write_atomically
from .shell import output_of

# What a change of each field of Identity means, in the order of the fields.
CHANGES = (
    "HEAD moved from {} to {}",
    "source files were changed",
    "source files were written again",
    "files were changed, added or removed",
)

_digests: dict[tuple[int, ...], str] = {}


def digest(path: Path) -> str:
    """The hash of a file, or of all names, files and links in a folder except `__pycache__`."""
    found = hashlib.sha256()
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            if entry.name != "__pycache__":
                content = str(entry.readlink()) if entry.is_symlink() else digest(entry)
                found.update(os.fsencode(f"{entry.name}\0{content}\0"))
        return found.hexdigest()
    # Hard links share an inode, so the file is read once. Every change of a file changes its ctime.
    stat = path.stat()
    which = stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns
    if which not in _digests:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(min(stat.st_size, 1 << 20)):
                found.update(chunk)
        _digests[which] = found.hexdigest()
    return _digests[which]


def sources(pattern: str) -> tuple[Path, ...]:
    return tuple(sorted(path for path in REPO.glob(pattern) if path.is_file()))


def relative(value: object) -> str:
    """The value as text; a path in the checkout is relative, so that stamps survive its move."""
    inside = isinstance(value, Path) and value.is_relative_to(REPO)
    return str(value.relative_to(REPO) if inside else value)


def code() -> tuple[Path, ...]:
    """The Python files of this tool and of the engine."""
    return sources("torchship/**/*.py")


@cache
def tool() -> str:
    return hashlib.sha256("".join(map(digest, code())).encode()).hexdigest()


def key_of(name: str, inputs: Iterable[Path], facts: Mapping[str, Any]) -> str:
    """The hash of a task's name, inputs and facts, and of the tool's code."""
    lines = [name, tool(), json.dumps(facts, sort_keys=True, default=relative)]
    lines += [f"{relative(path)}\0{digest(path)}" for path in inputs]
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()


class Stamp(NamedTuple):
    """The record of a finished task: its key, the digest of each output, the duration."""

    key: str
    outputs: dict[str, str]
    seconds: float

    def intact(self, *, without: Collection[Path] = ()) -> bool:
        """Whether all outputs except those in `without` still have their digests."""
        found = ((REPO / path, value) for path, value in self.outputs.items())
        try:
            return all(path in without or digest(path) == value for path, value in found)
        except OSError:
            return False


def stamp_file(folder: Path, task: str) -> Path:
    return folder / "stamps" / f"{task.replace('/', '__')}.json"


def read_stamp(folder: Path, task: str) -> Stamp | None:
    """The stamp of `task`; None if the file is missing or is not a whole stamp."""
    try:
        return Stamp(**json.loads(stamp_file(folder, task).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_stamp(folder: Path, task: str, stamp: Stamp) -> None:
    write_atomically(stamp_file(folder, task), json.dumps(stamp._asdict(), indent=1))


def commit() -> str:
    return engine_sources.git_commit(PROJECT, os.environ)


class Identity(NamedTuple):
    """The state of the checkout at one moment.

    `sources` is a hash of the commit and the files; `written` is a hash of the files' times. It
    changes if git checks out another commit and then this one, as git then writes files again.
    """

    head: str | None
    sources: str
    written: str
    clean: bool

    def change(self, later: "Identity") -> str:
        """The text in CHANGES for the first field that differs in `later`; "" if none differs."""
        pairs = zip(self, later, CHANGES, strict=True)
        return next((text.format(old, new) for old, new, text in pairs if old != new), "")


def identity(files: Iterable[Path]) -> Identity:
    files = sorted(files)
    written = [f"{relative(path)}\0{path.stat().st_mtime_ns}" for path in files]
    return Identity(
        head=(output_of("git", "rev-parse", "HEAD", cwd=REPO) or "").strip() or None,
        clean=output_of("git", "status", "--porcelain", "-unormal", cwd=REPO) == "",
        sources=source_identity(files),
        written=hashlib.sha256(os.fsencode("\n".join(written))).hexdigest(),
    )


def source_epoch() -> int:
    """The sources' date in seconds since 1970; 2020-01-01 if it is unknown."""
    # The default is not 0, because zip files have no dates before 1980.
    return int(engine_sources.source_epoch(PROJECT, os.environ) or 1577836800)


def source_env() -> dict[str, str]:
    """Environment variables for builds outside the checkout, which cannot ask git."""
    return {"SOURCE_DATE_EPOCH": str(source_epoch()), PROJECT.variable("GIT_COMMIT"): commit()}


def source_identity(files: Iterable[Path]) -> str:
    """A hash of the commit, its date and the files; runs with equal hashes may join artefacts."""
    lines = [commit(), str(source_epoch())]
    lines += [f"{relative(path)}\0{digest(path)}" for path in files]
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()
