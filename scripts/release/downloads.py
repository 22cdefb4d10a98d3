"""Fetches a download whose hash is wrong once more; wrong twice is a failure."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.paths import tool
from release.shell import CommandFailed, Log, clean_env

# How uv and pip report a wrong hash.
WRONG_HASH = re.compile(r"hash(es)? (mismatch|do not match)|do not match the hashes", re.IGNORECASE)
TWICE = (
    "The hash of a download was wrong twice: the index, or a proxy before it, serves another file "
    "than it announces; try again later, or name another index in PIP_INDEX_URL"
)


def uv_settings(*, find_links: bool = True) -> dict[str, str]:
    """pip's index settings under uv's names; URLs with passwords must not be in a command."""
    settings = {
        name: os.environ.get(f"PIP_{name}", "") for name in ("INDEX_URL", "EXTRA_INDEX_URL")
    }
    if find_links:
        settings["FIND_LINKS"] = ",".join(os.environ.get("PIP_FIND_LINKS", "").split())
    return {f"UV_{name}": value for name, value in settings.items() if value}


def uv(log: Log, words: Sequence[str | Path], *, find_links: bool = True, remedy: str = "") -> None:
    """Runs `uv`, and once more without its cache if the hash of a download was wrong."""
    env = clean_env(**uv_settings(find_links=find_links))
    _twice(log, [tool("uv"), *words], "--refresh", env, remedy)


def pip(log: Log, words: Sequence[str | Path], *, remedy: str = "") -> None:
    """Runs the tool's own `pip` in the same way."""
    _twice(log, [sys.executable, "-m", "pip", *words], "--no-cache-dir", clean_env(), remedy)


def _twice(
    log: Log, command: Sequence[str | Path], no_cache: str, env: Mapping[str, str], remedy: str
) -> None:
    try:
        log.run(command, env=env, remedy=remedy)
    except CommandFailed as error:
        if not WRONG_HASH.search(error.said):
            raise
        log.write("the hash of a download is wrong: fetching again without the cache")
        log.run([*command, no_cache], env=env, remedy=TWICE)
