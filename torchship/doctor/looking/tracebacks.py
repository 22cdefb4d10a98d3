"""Reads tracebacks out of text: of a process that could tell nothing else, or of a pasted log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .seen import ENDED, RAISED, Seen, SeenError, SeenFrame

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
#: Not all are called an error; behind frames, a name with its module is one all the same.
_RAISED = re.compile(r"^(?P<type>(?:[A-Za-z_]\w{0,100}\.){1,9}[A-Z]\w{0,100}): (?P<text>.*)$")
_MOST_ERRORS = 10


def errors_in(lines: Sequence[str]) -> tuple[SeenError, ...]:
    """The errors of the tracebacks in a log, the last one first."""
    errors: list[SeenError] = []
    frames: list[SeenFrame] = []
    for line in lines:
        match = _FRAME.match(line) or _NOTEBOOK_FRAME.match(line)
        if match:
            frames.append(
                SeenFrame(file=match["file"], line=int(match["line"]), function=match["in"] or "")
            )
            continue
        error = _ERROR.match(line) or (_RAISED.match(line) if frames else None)
        if error:
            errors.insert(0, _error(error["type"], error["text"], frames))
            frames = []
    return tuple(errors[:_MOST_ERRORS])


def _error(kind: str, text: str, frames: Sequence[SeenFrame]) -> SeenError:
    return SeenError(type=kind, message=text, name="", path="", frames=tuple(frames))


def with_printed_error(seen: Seen) -> Seen:
    """What was seen; of a process that ended before it told anything, the error that it printed.

    Python itself fails so where a file hides a module with which it starts.
    """
    if seen.outcome != ENDED:
        return seen
    _, found, traceback = seen.output.rpartition("Traceback (most recent call last):")
    errors = errors_in(traceback.splitlines()) if found else ()
    return seen._replace(outcome=RAISED, errors=errors) if errors else seen
