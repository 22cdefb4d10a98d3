"""What glibc's dynamic linker tells of its work (LD_DEBUG), read into records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...judge.project import Record
from ...judge.records import NOTHING
from ...judge.text import list_names, read_regular

#: What the linker is asked to tell: where it looks for libraries, and which file needs which.
VARIABLE, WANTED = "LD_DEBUG", "libs,files"
OUTPUT_VARIABLE = "LD_DEBUG_OUTPUT"
#: Of all files of one look; a process that writes more is ended.
MAX_LOG = 32 << 20
_MAX_FILES = 100
_MAX_TRIED = 200
_LINE = re.compile(r"^\s*\d+:\t(.*)$")
_NEEDED = re.compile(r"file=(.+?) \[\d+\];\s+(needed|dynamically loaded) by (.+?) \[\d+\]")
_CALLING = re.compile(r"calling (init|fini): (.+?)(?: \[\d+\])?$")
_MAPPED = re.compile(r"file=(.+?) \[\d+\];\s+generating link map")
_ERROR = re.compile(r"(.+?): error: (.+?): (.+?)(?: \((?:fatal|continued)\))?$")


class LinkerError(Record, kw_only=True):
    """An objection of the linker."""

    file: str  #: the file that it blames, as it writes it
    occasion: str  #: such as "symbol lookup error"
    text: str


class LinkerLog(Record, kw_only=True):
    """What the linker did in one process, up to its end."""

    needed_by: Mapping[str, str] = NOTHING  #: the file that asked for a library, by its name
    found: Mapping[str, str] = NOTHING  #: the file that was taken for a name
    tried: Mapping[str, tuple[str, ...]] = NOTHING  #: the files that were tried for it
    errors: tuple[LinkerError, ...] = ()
    last_opened: str = ""  #: the object that was opened last while the program ran
    #: The object whose initialization began last: in a process that died, it died there or later.
    last_initialized: str = ""
    last_finalized: str = ""  #: the object whose code for the end of a process began last


def read_log(folder: Path, start: str) -> LinkerLog | None:
    """The log of the process that wrote most, of all whose files begin with `start`."""
    logs: list[bytes] = []
    for name in list_names(folder, _MAX_FILES):
        if name.startswith(start):
            try:
                logs.append(read_regular(folder / name, MAX_LOG))
            except OSError:
                continue
    if not logs:
        return None
    return parse_log(max(logs, key=len).decode("utf-8", "replace"))


def parse_log(content: str) -> LinkerLog:
    needed_by: dict[str, str] = {}
    found: dict[str, str] = {}
    tried: dict[str, list[str]] = {}
    errors: list[LinkerError] = []
    last: dict[str, str] = {}
    sought = ""
    for line in _lines(content):
        if line.startswith("find library="):
            sought = line.removeprefix("find library=").partition(" [")[0]
            tried.setdefault(sought, [])
        elif line.startswith("  trying file=") and sought:
            if len(tried[sought]) < _MAX_TRIED:
                tried[sought].append(line.removeprefix("  trying file="))
        elif match := _CALLING.match(line):
            last[match[1]] = match[2]
        elif match := _NEEDED.match(line):
            needed_by.setdefault(match[1], match[3])
            last[match[2]] = match[1]
        elif match := _MAPPED.match(line):
            if tried.get(match[1]):
                found[match[1]] = tried[match[1]][-1]
        elif match := _ERROR.match(line):
            errors.append(LinkerError(file=match[1], occasion=match[2], text=match[3]))
    return LinkerLog(
        needed_by=needed_by,
        found=found,
        tried={name: tuple(files) for name, files in tried.items()},
        errors=tuple(errors),
        last_opened=last.get("dynamically loaded", ""),
        last_initialized=last.get("init", ""),
        last_finalized=last.get("fini", ""),
    )


def _lines(content: str) -> Iterator[str]:
    for line in content.split("\n"):
        match = _LINE.match(line)
        if match:
            yield match[1].replace("\t", " ").replace("  trying", "  trying")
