"""The facts that a verdict rests on, as JSON: what was read in a file's headers and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from measurements import storage
from torchship.judge import records
from torchship.judge.linking import process
from torchship.judge.project import Record
from torchship.judge.reading import elf
from torchship.judge.records import BinaryRecord, Runtime
from torchship.judge.target import Target

PATH = storage.RESULTS / "reported_headers.json.xz"
#: The modules with the classes of the stored records.
_HOMES = (records, process, elf)
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
    # What these records have, and what is not stored of them.
    missing: dict[str, dict[str, object]] = {
        "Owner": {"libraries": {}},
        "Runtime": {"target": Target()},
    }
    given = missing.get(name, {})
    (home,) = (module for module in _HOMES if _has_class(module, name))
    record: object = getattr(home, name)(**given, **{k: decode(v) for k, v in fields.items()})
    return record


def _has_class(module: ModuleType, name: str) -> bool:
    return getattr(getattr(module, name, None), "__module__", "") == module.__name__


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
