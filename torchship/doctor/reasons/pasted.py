"""A traceback that somebody pasted, read into what would have been seen here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..looking.seen import DIED, RAISED, Seen, frames_in
from ..looking.tracebacks import errors_in

_DIED = re.compile(r"(Segmentation fault|Illegal instruction|Bus error|Aborted)")
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Illegal instruction": "SIGILL",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
}


def seen_in(lines: Sequence[str]) -> Seen | None:
    """What the last traceback of a log shows, or that a process died; None for neither."""
    errors = errors_in(lines)
    if errors:
        return Seen(what="", outcome=RAISED, errors=errors)
    died = next((match for line in reversed(lines) if (match := _DIED.search(line))), None)
    if died is None:
        return None
    where = frames_in("\n".join(lines))
    return Seen(what="", outcome=DIED, signal=_SIGNALS[died[1]], frames=where)
