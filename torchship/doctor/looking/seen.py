"""What was seen: the records, made of what import_probe.py tells and checked on the way."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ...judge.project import Record
from ...judge.records import NOTHING
from .linker_log import LinkerLog

#: "ended": the process ended without an error, as `os._exit` does. "hidden": Python takes another
#: file under this name.
Outcome = Literal["worked", "hidden", "raised", "died", "ended", "out of time"]
WORKED: Outcome = "worked"
HIDDEN: Outcome = "hidden"
RAISED: Outcome = "raised"
DIED: Outcome = "died"
ENDED: Outcome = "ended"
OUT_OF_TIME: Outcome = "out of time"

_MAX_LINE = 8 << 20
_MAX_TEXT = 8000
_MAX_ITEMS = 5000
_MAX_OUTPUT = 64_000
#: What the dynamic linker says where it does not return an error and ends the process.
_OF_LINKER = re.compile(
    r"^.{0,500}: (?:symbol lookup|relocation) error: (.+)$"
    r"|^(Inconsistency detected by ld\.so: .+)$",
    re.MULTILINE,
)
_FRAME = re.compile(r'^  File "(?P<file>.{1,1000})", line (?P<line>\d{1,9}|\?\?\?) in (?P<in>.*)$')


class SeenFrame(Record, kw_only=True):
    """A frame of Python."""

    file: str
    line: int
    function: str


class SeenError(Record, kw_only=True):
    """An exception."""

    type: str  #: such as `ImportError`, with its module if it is not built in
    message: str
    name: str  #: the module that an ImportError names; ""
    path: str  #: the file that an ImportError names; ""
    frames: tuple[SeenFrame, ...]  #: outermost first, without those of importlib

    @property
    def last_line(self) -> str:
        """The last line of its traceback, such as `ImportError: libx.so: cannot open ...`."""
        return f"{self.type}: {self.message}" if self.message else self.type


class Seen(Record, kw_only=True):
    """What happened when a module was imported, or an extension loaded."""

    what: str  #: the module, or the path of the extension
    outcome: Outcome
    seconds: float = 0.0
    name: str = ""  #: under which an extension was imported; "" if it was opened as a library
    file: str = ""  #: the file or folder of which Python made the module; ""
    errors: tuple[SeenError, ...] = ()  #: the one that was raised, then what it was raised from
    signal: str = ""  #: that ended the process, such as `SIGSEGV`; ""
    is_at_end: bool = False  #: whether it died when it was done, and the process ended
    frames: tuple[SeenFrame, ...] = ()  #: where it died or hung, outermost first
    output: str = ""  #: the end of what it printed
    mapped: tuple[str, ...] = ()  #: the objects in its memory
    imports_torch: bool = False  #: whether it imports torch by itself, before its own objects
    torch_file: str = ""  #: of which file or folder Python made the module torch; "" if it did not
    needs_torch_first: bool = False  #: whether it works only after `import torch`
    before: tuple[SeenError, ...] = ()  #: what failed before an extension was tried alone
    log: LinkerLog | None = None  #: what the dynamic linker told, if it was asked

    @property
    def works(self) -> bool:
        return self.outcome == WORKED

    @property
    def words_of_linker(self) -> str:
        """What the dynamic linker said when it ended the process; "" if it did not."""
        match = _OF_LINKER.search(self.output) if self.outcome == ENDED else None
        return match[1] or match[2] if match else ""

    @property
    def last_line(self) -> str:
        """What its user reads last."""
        if self.errors:
            return self.errors[0].last_line
        if self.outcome == DIED:
            when = " when it ended, after the import" if self.is_at_end else ""
            return f"the process died of {self.signal}{when}"
        if self.words_of_linker:
            return self.words_of_linker
        return {OUT_OF_TIME: "the import did not end", ENDED: "the import ended the process"}.get(
            self.outcome, ""
        )


class End(Record, kw_only=True):
    """How a child of the other process ended."""

    what: str
    returncode: int  #: as `subprocess` has it
    is_late: bool
    output: str


class Found(Record, kw_only=True):
    """Where Python would import a module from."""

    module: str
    places: tuple[Path, ...]  #: its file, and the folders of a package
    behind: Path | None = None  #: the file of one with code, where a folder without any is taken


def facts_of(told: bytes) -> Iterator[Seen | End | Found]:
    """What the other process told, a line each; a line that cannot be understood is left out."""
    for line in told.split(b"\n"):
        if line and len(line) <= _MAX_LINE:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                fact = json.loads(line)
                yield _fact(fact)


def _fact(fact: Mapping[str, Any]) -> Seen | End | Found:
    if "ended" in fact:
        return _end(fact)
    return _found(fact) if "found" in fact else _seen(fact)


def _found(fact: Mapping[str, Any]) -> Found:
    places = [_text(fact["file"]), *map(_text, fact["folders"][:_MAX_ITEMS])]
    behind = _text(fact["behind"])
    return Found(
        module=_text(fact["found"]),
        places=tuple(Path(one) for one in places if one),
        behind=Path(behind) if behind else None,
    )


def _seen(fact: Mapping[str, Any]) -> Seen:
    outcome = fact["outcome"]
    if outcome not in (WORKED, HIDDEN, RAISED):
        raise ValueError(outcome)
    return Seen(
        what=_text(fact["what"]),
        outcome=outcome,
        seconds=float(fact["seconds"]),
        name=_text(fact.get("name", "")),
        file=_text(fact.get("file", "")),
        errors=tuple(_error(error) for error in fact.get("errors", ())[:_MAX_ITEMS]),
        mapped=tuple(_text(path) for path in fact["mapped"][:_MAX_ITEMS]),
        imports_torch=fact.get("imports_torch") is True,
        torch_file=_text(fact.get("torch_file", "")),
    )


def _error(fact: Mapping[str, Any]) -> SeenError:
    return SeenError(
        type=_text(fact["type"]),
        message=_text(fact["message"]),
        name=_text(fact["name"]),
        path=_text(fact["path"]),
        frames=tuple(
            SeenFrame(
                file=_text(frame["file"]),
                line=int(frame["line"]),
                function=_text(frame["function"]),
            )
            for frame in fact["frames"][:_MAX_ITEMS]
        ),
    )


def _end(fact: Mapping[str, Any]) -> End:
    status = int(fact["status"])
    return End(
        what=_text(fact["ended"]),
        returncode=-(status & 0x7F) if status & 0x7F else status >> 8 & 0xFF,
        is_late=fact["late"] is True,
        output=_text(fact["output"], _MAX_OUTPUT),
    )


def _text(value: object, most: int = _MAX_TEXT) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    # A lone surrogate is a byte of a path that is no UTF-8.
    return value[:most]


def signal_of(end: End) -> str:
    """The signal of which a process died, such as `SIGSEGV`; "" if it ended otherwise."""
    if end.returncode >= 0 or end.is_late:
        return ""
    with suppress(ValueError):
        return signal.Signals(-end.returncode).name
    return f"signal {-end.returncode}"


def seen_at_end(end: End, seconds: float = 0.0) -> Seen:
    """What is known of a process that told nothing before it ended."""
    outcome = OUT_OF_TIME if end.is_late else ENDED
    return Seen(
        what=end.what,
        outcome=DIED if signal_of(end) else outcome,
        seconds=seconds,
        signal=signal_of(end),
        frames=frames_in(end.output),
        output=end.output,
    )


def frames_in(output: str) -> tuple[SeenFrame, ...]:
    """The frames that faulthandler printed last, outermost first."""
    _, found, after = output.rpartition("(most recent call first):")
    frames: list[SeenFrame] = []
    for line in after.split("\n")[1:] if found else ():
        match = _FRAME.match(line)
        if match is None:
            break
        number = int(match["line"]) if match["line"].isdecimal() else 0
        if match["file"] != "<string>" and not match["file"].startswith("<frozen importlib"):
            frames.append(SeenFrame(file=match["file"], line=number, function=match["in"]))
    return tuple(reversed(frames))


class Looked(Record, kw_only=True):
    """All that was seen of an environment."""

    torch: Seen | None = None  #: None if it was not looked at
    packages: Mapping[str, Seen] = NOTHING  #: by the module that was imported
    extensions: Mapping[Path, Seen] = NOTHING  #: those that were loaded by themselves
