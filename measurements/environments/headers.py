"""The facts that a verdict rests on, as JSON: what was read in a file's headers and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measurements import storage
from torchship.judge import records
from torchship.judge.project import Record
from torchship.judge.records import (
    BinaryRecord,
    BroughtIn,
    ExecutableStack,
    LinkFault,
    MissingSymbolVersion,
    NotLinked,
    RefusedLibrary,
    Runtime,
    StaticTls,
    UndefinedSymbols,
)
from torchship.judge.target import Target

PATH = storage.RESULTS / "reported_headers.json.xz"
#: What no verdict of these cases rests on: fixes, the op of a client, other files of a package.
_LEFT_OUT = {"environment", "fix", "libraries", "project", "target"}


@dataclass(frozen=True)
class Headers:
    """The facts of one extension of an environment, and the verdict on it."""

    case: str
    file: str
    state: str
    code: str
    binary: BinaryRecord
    runtime: Runtime


def encode(value: object) -> object:
    """A value as JSON takes it; what is no plain value is an object with one key."""
    if isinstance(value, Record):
        fields = {
            name: encode(field)
            for name, field in vars(value).items()
            if name not in _LEFT_OUT and field != getattr(type(value), name, ...)
        }
        return {"record": [type(value).__name__, fields]}
    if isinstance(value, Mapping):
        return {"mapping": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple | frozenset):
        return [encode(item) for item in value]
    if isinstance(value, Path):
        return {"path": str(value)}
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def decode(value: object) -> object:
    """The value of `encode`, in which every sequence is a tuple."""
    if isinstance(value, list):
        return tuple(map(decode, value))
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "path":
        return Path(content)
    if kind == "mapping":
        return {decode(key): decode(item) for key, item in content}
    name, fields = content
    if name == "LinkFault":
        facts: dict[str, Any] = {key: decode(item) for key, item in fields.items()}
        return _link_fault(**facts)
    # What these records have, and what is not stored of them.
    missing: dict[str, dict[str, object]] = {
        "Owner": {"libraries": {}},
        "Runtime": {"target": Target()},
    }
    given = missing.get(name, {})
    record: object = getattr(records, name)(**given, **{k: decode(v) for k, v in fields.items()})
    return record


def _link_fault(
    kind: str, file: Path, names: tuple[str, ...] = (), library: Path | None = None
) -> LinkFault:
    """A fault as it was stored when all kinds of faults had one class."""
    place = library or file
    if kind == "static TLS":
        return StaticTls(file=file, needed=int(names[0]), left=int(names[1]))
    if kind == "override":
        return BroughtIn(file=file, variable=names[0])
    if kind == "refused":
        return RefusedLibrary(file=file, reason=names[0])
    if kind == "version":
        return MissingSymbolVersion(file=file, library=place, version=names[0])
    if kind == "unlinked":
        return NotLinked(file=file, library=place, names=names)
    if kind == "symbols":
        return UndefinedSymbols(file=file, names=names)
    return ExecutableStack(file=file)


def load() -> list[Headers]:
    document = storage.load(PATH)
    assert isinstance(document, dict)
    headers = []
    for row in document["headers"]:
        binary = decode(row["binary"])
        runtime = decode(row["runtime"])
        assert isinstance(binary, BinaryRecord)
        assert isinstance(runtime, Runtime)
        headers.append(Headers(**{**row, "binary": binary, "runtime": runtime}))
    return headers
