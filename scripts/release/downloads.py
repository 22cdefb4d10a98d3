"""Fetches a download whose hash is wrong once more; wrong twice is a failure."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from release.paths import tool
from release.shell import CommandFailed, Log, clean_env

# The words of uv and pip.
WRONG_HASH = re.compile(r"hash(es)? (mismatch|do not match)|do not match the hashes", re.IGNORECASE)
TWICE = (
    "The hash of a download was wrong twice: the index, or a proxy before it, serves another file "
    "than it announces; try again later, or name another index in PIP_INDEX_URL"
)


def uv(log: Log, words: Sequence[str | Path], *, remedy: str = "") -> None:
    """Runs `uv`, and once more without its cache if the hash of a download was wrong.

    Raises:
        ReleaseError: it failed, or the hash was wrong again.
    """
    _twice(log, [tool("uv"), *words], "--refresh", remedy)


def pip(log: Log, words: Sequence[str | Path], *, remedy: str = "") -> None:
    """Runs the tool's own `pip` in the same way."""
    _twice(log, [sys.executable, "-m", "pip", *words], "--no-cache-dir", remedy)


def _twice(log: Log, command: Sequence[str | Path], no_cache: str, remedy: str) -> None:
    try:
        log.run(command, env=clean_env(), remedy=remedy)
    except CommandFailed as error:
        if not WRONG_HASH.search(error.said):
            raise
        log.write("the hash of a download is wrong: fetching again without the cache")
        log.run([*command, no_cache], env=clean_env(), remedy=TWICE)
