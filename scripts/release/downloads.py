"""Downloads whose hash is wrong are fetched again once; twice wrong is a failure."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from release.paths import tool
from release.shell import CommandFailed, Log, clean_env

# As uv and pip say it.
WRONG_HASH = re.compile(r"hash(es)? (mismatch|do not match)|do not match the hashes", re.IGNORECASE)
TWICE = (
    "The hash of a download was wrong twice: the index or something on the way to it gives another "
    "file than it announces; try again later, or name another index in PIP_INDEX_URL"
)


def uv(log: Log, words: Sequence[str | Path], *, remedy: str = "") -> None:
    """Runs `uv`, once more where the hash of something it fetched was wrong.

    Raises:
        ReleaseError: it failed, or the hash was wrong again.
    """
    _twice(log, [tool("uv"), *words], "--refresh", remedy)


def pip(log: Log, words: Sequence[str | Path], *, remedy: str = "") -> None:
    """Runs the tool's own `pip` likewise."""
    _twice(log, [sys.executable, "-m", "pip", *words], "--no-cache-dir", remedy)


def _twice(log: Log, command: Sequence[str | Path], past_caches: str, remedy: str) -> None:
    try:
        log.run(command, env=clean_env(), remedy=remedy)
    except CommandFailed as error:
        if not WRONG_HASH.search(error.said):
            raise
        log.write("the hash of a download is wrong: fetching again, past every cache")
        log.run([*command, past_caches], env=clean_env(), remedy=TWICE)
