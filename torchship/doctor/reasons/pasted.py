"""A traceback that somebody pasted, read into what would have been seen here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..looking.seen import DIED, RAISED, Seen, SeenError, SeenFrame, frames_in

_FRAME = re.compile(
    r'^\s*(?:[|>]\s*)?File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9})'
    r"(?:, in (?P<in>.{1,300}))?"
)
_NOTEBOOK_FRAME = re.compile(
    r"^File (?P<file>[/~][^\s:(]{1,1000}):(?P<line>\d{1,9})(?:, in (?P<in>.{1,300}))?"
)
_ERROR = re.compile(
    r"^\s*(?P<type>(?:[A-Za-z_]\w{0,100}\.){0,9}[A-Z]\w{0,100}(?:Error|Exception|Exit))"
    r": ?(?P<text>.*)$"
)
_DIED = re.compile(r"(Segmentation fault|Illegal instruction|Bus error|Aborted)")
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Illegal instruction": "SIGILL",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
}


def seen_in(lines: Sequence[str]) -> Seen | None:
    """What the last traceback of a log shows, or that a process died; None for neither."""
    errors: list[SeenError] = []
    frames: list[SeenFrame] = []
    for line in lines:
        match = _FRAME.match(line) or _NOTEBOOK_FRAME.match(line)
        if match:
            frames.append(
                SeenFrame(file=match["file"], line=int(match["line"]), function=match["in"] or "")
            )
            continue
        error = _ERROR.match(line)
        if error:
            errors.insert(0, _error(error["type"], error["text"], frames))
            frames = []
    if errors:
        return Seen(what="", outcome=RAISED, errors=tuple(errors[:10]))
    died = next((match for line in reversed(lines) if (match := _DIED.search(line))), None)
    if died is None:
        return None
    where = frames_in("\n".join(lines))
    return Seen(what="", outcome=DIED, signal=_SIGNALS[died[1]], frames=where)


def _error(kind: str, text: str, frames: Sequence[SeenFrame]) -> SeenError:
    return SeenError(type=kind, message=text, name="", path="", frames=tuple(frames))
