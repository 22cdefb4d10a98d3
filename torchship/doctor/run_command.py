"""`torch-doctor run COMMAND ...`: runs a command, and keeps what it says when it fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import BinaryIO

from ..judge.project import Record
from ..judge.text import read_regular
from ..judge.words import messages

_CHUNK = 1 << 16
#: The errors of an import and of the dynamic linker.
_OF_IMPORT = re.compile(
    r"^(?:ImportError|ModuleNotFoundError|OSError|AttributeError|RuntimeError"
    r"|importlib\.metadata\.\w{1,100}|pkg_resources\.\w{1,100}): |undefined symbol"
    r"|cannot open shared object|Fatal Python error",
    re.MULTILINE,
)

_IS_PYTHON = re.compile(r"python[\d.]*")
#: The first line of a script, or the second, where an installer had a path too long for the first.
_STARTS_PYTHON = re.compile(
    r"(?:#! ?(?:/usr/bin/env (?:-S )?)?|\'\'\'exec\' [\"]?)([^\s\"]*\bpython[\d.]*)(?=[\s\"]|$)"
)
_LONGEST_START = 2000


class EndedCommand(Record, kw_only=True):
    """How a command ended."""

    exit_code: int  #: as a shell has it
    output: str  #: the end of what it wrote to standard error

    @property
    def is_of_signal(self) -> bool:
        return self.exit_code > 128

    @property
    def is_of_import(self) -> bool:
        """Whether it ended by a signal, or with an error that may be one of an import."""
        return self.exit_code != 0 and (
            self.is_of_signal or _OF_IMPORT.search(self.output) is not None
        )


def run(command: Sequence[str]) -> EndedCommand:
    """Run a command in this terminal; what it writes to standard error passes through."""
    environ = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    try:
        process = subprocess.Popen(list(command), stderr=subprocess.PIPE, env=environ)
    except OSError as error:
        print(f"{command[0]} cannot be run ({error}). Check its name.", file=sys.stderr)
        return EndedCommand(exit_code=127, output="")
    assert process.stderr is not None
    kept: list[bytes] = []
    reader = threading.Thread(target=_pass_through, args=(process.stderr, kept))
    reader.start()
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the command got it, too, and ends as it likes
            continue
    reader.join()
    output = b"".join(kept).decode("utf-8", "replace")
    if code < 0:
        output += f"\n{_words_of_signal(-code)}\n"
    return EndedCommand(exit_code=code if code >= 0 else 128 - code, output=output)


def _pass_through(pipe: BinaryIO, kept: list[bytes]) -> None:
    size = 0
    while chunk := os.read(pipe.fileno(), _CHUNK):
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        kept.append(chunk)
        size += len(chunk)
        while size > messages.MAX_INPUT and len(kept) > 1:
            size -= len(kept.pop(0))


def _words_of_signal(number: int) -> str:
    """What a shell says of a process that died of a signal."""
    words = {4: "Illegal instruction", 6: "Aborted", 7: "Bus error", 11: "Segmentation fault"}
    return words.get(number, f"ended by signal {number}")


def python_of(command: Sequence[str]) -> str | None:
    """The Python that a command runs, itself or by the first lines of its script; None for another
    program."""
    program = shutil.which(command[0])
    if program is None or _IS_PYTHON.fullmatch(os.path.basename(program)):  # noqa: PTH119
        return program
    try:
        start = read_regular(program, _LONGEST_START).decode("utf-8", "replace")
    except OSError:
        return None
    matches = filter(None, map(_STARTS_PYTHON.match, start.splitlines()[:2]))
    return next((shutil.which(match[1]) for match in matches), None)
