"""The report on a folder of sources: each use of torch, and what a port would make of it."""

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..judge.text import read_regular
from .counterparts import (
    FIRST_DISPATCHER,
    HEADERS,
    STABLE_HEADERS,
    Counterpart,
    Status,
    minor,
    operators,
)
from .names import Own, Use, What, find_uses, learn
from .tokens import Kind, Token, tokenize

SUFFIXES = frozenset(
    [
        ".c",
        ".cc",
        ".cpp",
        ".cxx",
        ".cu",
        ".h",
        ".hh",
        ".hpp",
        ".hxx",
        ".cuh",
        ".inl",
        ".inc",
        ".hip",
    ]
)
#: Bounds, for folders that nobody wrote by hand.
MAX_FILES = 20_000
MAX_FILE_BYTES = 1 << 20
MAX_BYTES = 16 << 20
MAX_DEPTH = 40
#: Processor time for the first of two readings; what is left then is not read.
MAX_SECONDS = 60.0
#: Names in a report; later ones share a row. And places that a report has of a name.
MAX_NAMES = 10_000
MAX_PLACES = 1_000


class Place(NamedTuple):
    #: The path below the folder.
    file: str
    line: int


class Unread(NamedTuple):
    """A file that is not in the report."""

    file: str
    reason: str


@dataclass
class Row:
    """All uses of one name."""

    what: What
    name: str
    counterpart: Counterpart
    count: int = 0
    #: Where they are, MAX_PLACES at most.
    places: list[Place] = field(default_factory=list)


@dataclass
class Include:
    """All includes of one header of torch."""

    header: str
    #: What takes its place; "" for a header of the stable ABI.
    replacement: str
    places: list[Place] = field(default_factory=list)


@dataclass
class Report:
    folder: Path
    files: int
    unread: list[Unread]
    rows: list[Row]
    includes: list[Include]

    def having(self, *states: Status) -> list[Row]:
        return [row for row in self.rows if row.counterpart.status in states]

    def count(self, *states: Status) -> int:
        return sum(row.count for row in self.having(*states))

    @property
    def to_port(self) -> int:
        """The number of uses that are not yet part of the stable ABI."""
        return sum(row.count for row in self.rows) - self.count(Status.STABLE)

    @property
    def share(self) -> float | None:
        """The share of the uses to port that have a counterpart; None without such a use."""
        have = self.count(Status.COUNTERPART, Status.DISPATCHER)
        return have / self.to_port if self.to_port else None

    @property
    def torch(self) -> str:
        """The oldest torch that would run the port; "" if it uses nothing of torch."""
        return self._newest([row.counterpart.torch for row in self.rows])

    @property
    def headers(self) -> str:
        """The oldest torch whose headers the port would compile with."""
        return self._newest([_needed_headers(row) for row in self.rows])

    def needing(self, torch: str) -> list[Row]:
        """The rows that need this torch at run time."""
        return [row for row in self.rows if row.counterpart.torch == torch]

    def built_with(self, torch: str) -> list[Row]:
        """The rows that need the headers of this torch."""
        return [row for row in self.rows if _needed_headers(row) == torch]

    @staticmethod
    def _newest(versions: list[str]) -> str:
        return max(filter(None, versions), key=minor, default="")


def _needed_headers(row: Row) -> str:
    counterpart = row.counterpart
    headers = counterpart.built_with
    # What has no counterpart needs no headers, even if the dispatcher could call its name.
    is_called = headers and counterpart.name in operators().callable
    if is_called and minor(headers) > FIRST_DISPATCHER:
        return counterpart.torch  # older headers reach the operator through the dispatcher
    return headers


@dataclass
class _Source:
    file: str
    path: Path


def read_folder(folder: Path, exclude: tuple[str, ...] = ()) -> Report:
    """Reads the sources below a folder, or one source file.

    Folders with a name of `exclude` are left out, and hidden folders. Raises NotADirectoryError if
    there is no such folder or file.
    """
    unread: list[Unread] = []
    sources: list[_Source] = []
    own = Own()
    for source, tokens in _sources(folder, exclude, unread):
        # This reading is for what the sources define for each other; the next one counts.
        learn(tokens, own)
        sources.append(source)
    rows: dict[tuple[What, str], Row] = {}
    includes: dict[str, Include] = {}
    for source in sources:
        try:
            tokens = _read(source.path)
        except OSError:
            unread.append(Unread(source.file, "it changed while it was read"))
            continue
        for use in find_uses(tokens, own):
            _add_use(rows, use, source.file)
        for token in tokens:
            if token.kind is Kind.INCLUDE:
                _add_include(includes, token, source.file)
    return Report(
        folder=folder,
        files=len(sources),
        unread=unread,
        rows=sorted(rows.values(), key=lambda row: (-row.count, row.name)),
        includes=sorted(includes.values(), key=lambda include: include.header),
    )


def _add_use(rows: dict[tuple[What, str], Row], use: Use, file: str) -> None:
    key = (use.what, use.name)
    if key not in rows and len(rows) >= MAX_NAMES:
        key = (use.what, "other names")
    row = rows.setdefault(key, Row(what=use.what, name=key[1], counterpart=use.counterpart))
    row.count += 1
    if len(row.places) < MAX_PLACES:
        row.places.append(Place(file, use.line))


def _add_include(includes: dict[str, Include], token: Token, file: str) -> None:
    replacement = replace_header(token.text)
    if replacement is not None:
        include = includes.setdefault(token.text, Include(token.text, replacement))
        include.places.append(Place(file, token.line))


def replace_header(path: str) -> str | None:
    """What takes the place of a header of torch.

    "" for a header of the stable ABI, None for one that is not torch's.
    """
    if path.startswith(STABLE_HEADERS):
        return ""
    starts = [start for start in HEADERS if path.startswith(start)]
    return HEADERS[max(starts, key=len)] if starts else None


def _sources(
    folder: Path, exclude: tuple[str, ...], unread: list[Unread]
) -> Iterator[tuple[_Source, list[Token]]]:
    left = MAX_BYTES
    end = time.process_time() + MAX_SECONDS
    for count, path in enumerate(_files(folder, exclude)):
        file = str(path.relative_to(folder)) if path != folder else path.name
        if count >= MAX_FILES or left <= 0 or time.process_time() > end:
            unread.append(Unread(file, "it and all later files: more than one report reads"))
            return
        try:
            left -= min(path.stat().st_size, MAX_FILE_BYTES)
            tokens = _read(path)
        except OSError as error:
            unread.append(Unread(file, error.strerror or "cannot be read"))
        else:
            yield _Source(file, path), tokens


def _read(path: Path) -> list[Token]:
    """The tokens of a file; raises OSError where it cannot be read, or is too large."""
    content = read_regular(path, MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_FILE_BYTES >> 10} KiB", str(path))
    return tokenize(content.decode("utf-8", "replace"))


def _files(folder: Path, exclude: tuple[str, ...]) -> Iterator[Path]:
    """The source files below the folder in the order of their names; links are not followed."""
    if folder.is_file():
        yield folder
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; name a folder of C++ or CUDA sources")
    for root, folders, names in os.walk(folder):
        depth = len(Path(root).relative_to(folder).parts)
        kept = [name for name in folders if not name.startswith(".") and name not in exclude]
        folders[:] = sorted(kept) if depth < MAX_DEPTH else []
        for name in sorted(names):
            path = Path(root, name)
            if path.suffix.lower() in SUFFIXES and not path.is_symlink():
                yield path
