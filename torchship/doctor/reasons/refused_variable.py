"""Reason: the code reads a variable of the environment, and refuses what it holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...judge import fixes
from ...judge.records import Finding
from ...judge.text import printable, read_regular
from ...judge.words import codes
from ..looking.seen import SeenError
from .case import Case

#: Of the innermost frames, those whose files are read.
_MOST_FRAMES = 4
#: A shorter value, such as `1`, is in many messages by chance.
_SHORTEST = 2
_NAME = re.compile(r"""['"]([A-Z][A-Z0-9_]+)['"]""")


def variable_is_refused(case: Case) -> Finding | None:
    """The error has the value, and a file on its way the name."""
    for error in case.errors:
        for name, value in _held(error):
            if any(name in names for names in _names(case, error)):
                who = case.name_of(case.raiser)
                said = next(filter(None, map(str.strip, error.message.splitlines())), error.type)
                return case.finding(
                    codes.PYTHON_TOLD,
                    f"{who} reads the variable {name}, and refuses what it holds, "
                    f"{printable(value)[:100]}: {said[:200]}",
                    observed=f"{name}={value}",
                    needed="a value that the package takes, or none",
                    fix=fixes.unset(name),
                )
    return None


def _held(error: SeenError) -> Iterator[tuple[str, str]]:
    """The variables whose value the error speaks of. What is a path is in many messages."""
    for name, value in os.environ.items():
        if len(value) < _SHORTEST or any(map(os.path.exists, value.split(os.pathsep))):
            continue
        said = re.escape(value)
        # A number is in many messages, too, but not in quotes.
        pattern = rf"'{said}'" if value.isdecimal() else rf"(?<![\w./-]){said}(?![\w/-])"
        if re.search(pattern, error.message):
            yield name, value


def _names(case: Case, error: SeenError) -> Iterator[set[str]]:
    """What each of the files out of which the error comes quotes in capitals."""
    files = dict.fromkeys(frame.file for frame in reversed(error.frames))
    for file in [*files][:_MOST_FRAMES]:
        with suppress(OSError):
            content = read_regular(Path(file), budget=case.runtime.target.budget)
            yield {*_NAME.findall(content.decode("utf-8", "replace"))}
