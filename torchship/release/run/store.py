"""Identifies what a build depends on: the commit, files by their hashes, and finished tasks."""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from ...builder import sources as engine_sources
from ..matrix.settings import Settings
from ..paths import write_atomically
from .shell import output_of

# What a change of each field of Identity means, in the order of the fields.
CHANGES = (
    "HEAD moved from {} to {}",
    "source files were changed",
    "source files were written again",
    "files were changed, added or removed",
)

#: The folder of this tool and of the engine.
TORCHSHIP = Path(__file__).resolve().parents[2]

_digests: dict[tuple[int, ...], str] = {}


def digest(path: Path) -> str:
    """The hash of a file, or of all names, files and links in a folder except `__pycache__`."""
    if path.is_dir():
        return _digest_of_folder(path)
    # Hard links share an inode, so the file is read once. Every change of a file changes
    # its ctime.
    stat = path.stat()
    which = stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns
    if which not in _digests:
        content = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(min(stat.st_size, 1 << 20)):
                content.update(chunk)
        _digests[which] = content.hexdigest()
    return _digests[which]


def _digest_of_folder(folder: Path) -> str:
    entries = hashlib.sha256()
    for entry in sorted(folder.iterdir()):
        if entry.name != "__pycache__":
            content = str(entry.readlink()) if entry.is_symlink() else digest(entry)
            entries.update(os.fsencode(f"{entry.name}\0{content}\0"))
    return entries.hexdigest()


def sources(repo: Path, pattern: str) -> tuple[Path, ...]:
    return tuple(sorted(path for path in repo.glob(pattern) if path.is_file()))


def relative(path: Path, repo: Path) -> str:
    """The path as text; in the checkout it is relative, so that stamps survive its move."""
    return str(path.relative_to(repo) if path.is_relative_to(repo) else path)


def _to_json(value: object, repo: Path) -> object:
    """What stands for a value in a key: all fields of a dataclass, not only its name."""
    if isinstance(value, Path):
        return relative(value, repo)
    if is_dataclass(value):
        return {entry.name: getattr(value, entry.name) for entry in fields(value)}
    return str(value)


def code() -> tuple[Path, ...]:
    """The Python files of this tool and of the engine."""
    return sources(TORCHSHIP, "**/*.py")


@cache
def tool_digest() -> str:
    return hashlib.sha256("".join(map(digest, code())).encode()).hexdigest()


def key_of(name: str, inputs: Iterable[Path], facts: Mapping[str, object], repo: Path) -> str:
    """The hash of a task's name, inputs and facts, and of the tool's code."""
    facts_text = json.dumps(facts, sort_keys=True, default=partial(_to_json, repo=repo))
    lines = [name, tool_digest(), facts_text]
    lines += [f"{relative(path, repo)}\0{digest(path)}" for path in inputs]
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()


class Stamp(NamedTuple):
    """The record of a finished task: its key, the digest of each output, the duration.

    The paths of the outputs are relative to the checkout if they lie in it.
    """

    key: str
    outputs: dict[str, str]
    seconds: float

    def is_intact(self, repo: Path, *, without: Collection[Path] = ()) -> bool:
        """Whether all outputs except those in `without` still have their digests."""
        digests = ((repo / path, value) for path, value in self.outputs.items())
        try:
            return all(path in without or digest(path) == value for path, value in digests)
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


def commit(settings: Settings) -> str:
    return engine_sources.git_commit(settings.project, os.environ)


class Identity(NamedTuple):
    """The state of the checkout at one moment.

    `sources` is a hash of the commit and the files; `written` is a hash of the files'
    times. It changes if git checks out another commit and then this one, as git then writes
    files again.
    """

    head: str | None
    sources: str
    written: str
    clean: bool

    def change(self, later: "Identity") -> str:
        """The text in CHANGES for the first field that differs in `later`.

        "" if none differs.
        """
        for old, new, change in zip(self, later, CHANGES, strict=True):
            if old != new:
                return change.format(old, new)
        return ""


def identity(files: Iterable[Path], settings: Settings) -> Identity:
    repo = settings.repo
    files = sorted(files)
    times = [f"{relative(path, repo)}\0{path.stat().st_mtime_ns}" for path in files]
    return Identity(
        head=(output_of("git", "rev-parse", "HEAD", cwd=repo) or "").strip() or None,
        clean=output_of("git", "status", "--porcelain", "-unormal", cwd=repo) == "",
        sources=source_identity(files, settings),
        written=hashlib.sha256(os.fsencode("\n".join(times))).hexdigest(),
    )


def source_epoch(settings: Settings) -> int:
    """The sources' date in seconds since 1970; 2020-01-01 if it is unknown."""
    # The default is not 0, because zip files have no dates before 1980.
    return int(engine_sources.source_epoch(settings.project, os.environ) or 1577836800)


def source_env(settings: Settings) -> dict[str, str]:
    """Environment variables for builds outside the checkout, which cannot ask git."""
    return {
        "SOURCE_DATE_EPOCH": str(source_epoch(settings)),
        settings.project.variable("GIT_COMMIT"): commit(settings),
    }


def source_identity(files: Iterable[Path], settings: Settings) -> str:
    """A hash of the commit, its date and the files.

    Runs with equal hashes may join artefacts.
    """
    lines = [commit(settings), str(source_epoch(settings))]
    lines += [f"{relative(path, settings.repo)}\0{digest(path)}" for path in files]
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()
