"""Names, paths and small files from outside, made safe to read and to print."""

import errno
import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from .budget import MEGABYTES, Budget, BudgetSpentError

#: Of memory that a value of a JSON text takes, such as a dict of one entry.
_BYTES_OF_VALUE = 250
#: Of a JSON text that is read outside a run, and of its values.
_MEGABYTES_OF_JSON = 75
_CHUNK = 1 << 20


def printable(raw: str | bytes | os.PathLike[str]) -> str:
    """The text on one line, with a backslash escape for every character that does not print.

    A newline could forge a line of the report, and an escape sequence could rewrite the
    terminal. For a byte that is not UTF-8, `print` would raise.
    """
    if isinstance(raw, bytes):
        raw = raw.decode("utf-8", "backslashreplace")
    line = os.fspath(raw)
    if line.isprintable():
        return line
    escapes = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return "".join(escapes)


def quoted(path: str | os.PathLike[str]) -> str:
    """A path as one word of a shell command, on one line and without control characters."""
    name = os.fspath(path)
    if name.isprintable():
        from shlex import quote  # an import of the package does not need it

        return quote(name)
    # Bash and zsh read such escapes between $' and '.
    is_plain = {*range(32, 127)} - {*b"'\\"}
    characters = (chr(b) if b in is_plain else f"\\x{b:02x}" for b in os.fsencode(name))
    return f"$'{''.join(characters)}'"


def some(names: Sequence[str], most: int = 3) -> str:
    """The first names and the number of the others: `a, b, c and 4 more`. Long names are cut."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:200] for name in names[:most]) + more


def read_regular(
    path: str | os.PathLike[str], limit: int | None = None, *, budget: Budget | None = None
) -> bytes:
    """The first `limit` bytes of a regular file, which the whole checker reads through here.

    A FIFO would block, a device may have no end, and a sparse file may be larger than the
    memory: without `limit`, the budget of the run is asked. Raises OSError for everything that is
    no readable regular file, for a name with a zero byte too, and outside a run for a file that is
    larger than its budget; and BudgetSpentError.
    """
    not_regular = OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # `path` may be a string
            raise not_regular
        # O_NONBLOCK: a FIFO may have taken the place of the file meanwhile.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_regular
        size = status.st_size if limit is None else min(limit, status.st_size)
        if budget is not None:
            budget.take(size)
        elif size > MEGABYTES << 20:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
        chunks: list[bytes] = []
        left = status.st_size or _CHUNK if limit is None else limit
        while left > 0 and (chunk := os.read(descriptor, min(left, _CHUNK))):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether this is a regular file, or a link to one. Before Python 3.14, Path.is_file
    raises for a file in a folder that is closed to this user, and for a name that is too
    long."""
    return os.path.isfile(path)  # noqa: PTH113


def list_names(folder: str | os.PathLike[str], limit: int | None = None) -> list[str]:
    """The names in a folder, sorted; none if it cannot be read. With `limit`, no more of them
    are read."""
    with suppress(OSError, ValueError):
        if limit is None:
            return sorted(os.listdir(folder))  # noqa: PTH208  # quicker than iterdir
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, limit))
    return []


def read_json(path: Path, budget: Budget | None = None) -> dict[str, Any]:
    """The object in a JSON file; empty if the file cannot be read or holds no object. Only with
    the budget of a run, it raises BudgetSpentError."""
    own = budget or Budget(megabytes=_MEGABYTES_OF_JSON)
    try:
        return parse_json(read_regular(path, budget=own), own)
    except OSError:
        return {}
    except BudgetSpentError:
        if budget is not None:
            raise
        return {}


def read_table(package: str, name: str) -> dict[str, Any]:
    """The object in the JSON file of this name in a package, in a zip archive too.

    Raises OSError if the file is missing: a verdict without its tables would be wrong.
    """
    import pkgutil  # here, since an import of the package reads no table

    content = pkgutil.get_data(package, name)
    return parse_json(content or b"")


def parse_json(content: bytes, budget: Budget | None = None) -> dict[str, Any]:
    """The object that a JSON text holds; empty if the text is malformed or holds no object. Raises
    BudgetSpentError."""
    if budget is not None:
        budget.take(sum(map(content.count, (b",", b":", b"[", b"{"))) * _BYTES_OF_VALUE)
    with suppress(ValueError, RecursionError):
        parsed = json.loads(content)
        return parsed if isinstance(parsed, dict) else {}
    return {}


def parse_version(version: str | None) -> tuple[int, ...] | None:
    """`"580.65.06"` -> `(580, 65, 6)`; None if the text does not start with a number."""
    numbers: list[int] = []
    for part in (version or "").split(".", 8)[:8]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))][:9]
        if digits:
            numbers.append(int(digits))
        if not digits or digits != part:
            break
    return tuple(numbers) or None
