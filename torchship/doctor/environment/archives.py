"""The names in a zip archive that is an entry of `sys.path`, as pex and zipapp make them."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from pathlib import Path

from ...judge.text import is_file

#: Of the list of names at the end of an archive; a longer one is not read.
_MOST_BYTES = 8 << 20
_END = b"PK\x05\x06"
#: Of the last record, with its comment.
_LAST = 22 + 0xFFFF


def names_in(archive: Path) -> list[str]:
    """The names in an archive; none if it is none, or has too many."""
    if not is_file(archive):
        return []
    with suppress(OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        if 0 < _size_of_list(archive) <= _MOST_BYTES:
            with zipfile.ZipFile(archive) as opened:
                return opened.namelist()
    return []


def _size_of_list(archive: Path) -> int:
    """The bytes that the list of names takes; 0 if the file is no archive. Raises OSError."""
    with archive.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LAST))
        record = file.read()
    place = record.rfind(_END)
    return int.from_bytes(record[place + 12 : place + 16], "little") if place >= 0 else 0
