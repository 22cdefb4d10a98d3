"""`vendor/torchship.json`: which torchship a project has, and which of its files torchship wrote.

A file whose hash is not the recorded one was changed by its author, and is never replaced.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from .errors import ProjectError

PATH = Path("vendor", "torchship.json")
NOTE = "the torchship of this project, and the hashes of the files that it generated"


@dataclass(frozen=True, kw_only=True)
class VendorRecord:
    version: str  #: of torchship
    archive: str  #: the name of its wheel in `vendor`
    generated: dict[str, str]  #: the hash of each generated file by its path
    note: str = NOTE


def content_digest(content: bytes) -> str:
    """The hash of a file; without the values before `#=`, which follow from the matrix."""
    return hashlib.sha256(re.sub(rb"(?m)^.*(?=  #= )", b"", content)).hexdigest()


def is_project(root: Path) -> bool:
    return (root / PATH).is_file()


def read_record(root: Path) -> VendorRecord:
    """Raises ProjectError for a record that is missing, damaged, or names files elsewhere."""
    path = root / PATH
    if not path.is_file():
        raise ProjectError(
            f"{root} has no {PATH}: `torchship new` did not make it; name the folder of a project"
        )
    try:
        record = VendorRecord(**json.loads(path.read_text(encoding="utf-8")))
        names = [f"vendor/{record.archive}", *record.generated]
    except (ValueError, TypeError) as error:
        raise ProjectError(
            f"{path} is damaged ({error}); put it back: git checkout {PATH}"
        ) from error
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] in ("/", ".git") or "\0" in name:
            raise ProjectError(
                f"{path} names {name!r}, which is not a file of this repository; "
                f"put the record back: git checkout {PATH}"
            )
    return record


def record_text(record: VendorRecord) -> str:
    return json.dumps(asdict(record), indent=1, sort_keys=True) + "\n"


def write_record(root: Path, record: VendorRecord) -> None:
    replace_file(root / PATH, record_text(record).encode())


def note_generated(root: Path, names: Iterable[str]) -> bool:
    """Records that torchship has written these files just now, where `root` has a record.

    Returns whether the record changed.
    """
    if not is_project(root):
        return False
    record = read_record(root)
    generated = dict(record.generated)
    for name in names:
        if name in generated:
            generated[name] = content_digest((root / name).read_bytes())
    if generated == record.generated:
        return False
    write_record(
        root,
        VendorRecord(version=record.version, archive=record.archive, generated=generated),
    )
    return True


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Writes a file in one step: it is the old one or the new one, whenever this is stopped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.chmod(mode)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
