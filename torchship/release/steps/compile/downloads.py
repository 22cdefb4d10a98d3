"""Fetches packages by uv, pip and apt.

uv and pip fetch from PyPI, or from where PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_FIND_LINKS
point. A download with a wrong hash is fetched once more; a second wrong hash is a failure.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...paths import fresh, tool
from ...run.shell import CommandFailed, Log, clean_env

REMEDY = "Is the package index in reach? The tool uses PIP_INDEX_URL and PIP_FIND_LINKS"
# The messages of uv and pip for a wrong hash.
WRONG_HASH = re.compile(r"hash(es)? (mismatch|do not match)|do not match the hashes", re.IGNORECASE)
TWICE = (
    "The hash of a download was wrong twice: the index, or a proxy before the index, serves "
    "a file that is not the announced one; try again later, or name another index in PIP_INDEX_URL"
)


def uv_settings(*, find_links: bool = True) -> dict[str, str]:
    """pip's index variables as uv's.

    Command-line options would show the passwords in the URLs.
    """
    names = ("INDEX_URL", "EXTRA_INDEX_URL")
    settings = {name: os.environ.get(f"PIP_{name}", "") for name in names}
    if find_links:
        settings["FIND_LINKS"] = ",".join(os.environ.get("PIP_FIND_LINKS", "").split())
    return {f"UV_{name}": value for name, value in settings.items() if value}


def uv(log: Log, arguments: Sequence[str | Path], *, find_links: bool = True) -> None:
    """Runs `uv`.

    After a wrong hash of a download, runs it once more and refreshes its cache.
    """
    env = clean_env(log.settings.project, **uv_settings(find_links=find_links))
    _fetch(log, [tool("uv"), *arguments], env, without_cache="--refresh")


def pip(log: Log, arguments: Sequence[str | Path]) -> None:
    """Runs the tool's own `pip`; after a wrong hash, runs it once more without its cache."""
    command = [sys.executable, "-m", "pip", *arguments]
    _fetch(log, command, clean_env(log.settings.project), without_cache="--no-cache-dir")


def _fetch(
    log: Log, command: Sequence[str | Path], env: Mapping[str, str], *, without_cache: str
) -> None:
    """Runs the command; after a wrong hash, once more with the option `without_cache`."""
    try:
        log.run(command, env=env, remedy=REMEDY)
    except CommandFailed as error:
        if not WRONG_HASH.search(error.log_end):
            raise
        log.write("the hash of a download is wrong: fetching again, not from the cache")
        log.run([*command, without_cache], env=env, remedy=TWICE)


def apt(log: Log, place: Path, packages: Sequence[str], debian: str = "") -> None:
    """Unpacks Debian's packages and their dependencies into the folder `place`, without root.

    It leaves out what this machine has, unless `debian` names an architecture.
    """
    state = fresh(place.with_name("apt"))
    (state / "status").touch()
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    settings = [f"Dir::Cache={state}/cache", "APT::Sandbox::User=root", "Debug::NoLocking=1"]
    if debian:
        settings += [f"APT::Architecture={debian}", f"APT::Architectures::={debian}"]
        settings += [f"Dir::State={state}/state", f"Dir::State::status={state}/status"]
    command = ["apt-get", "-qq"]
    for setting in settings:
        command += ["-o", setting]
    remedy = "Is Debian's mirror in reach? Run apt-get update"
    if debian:
        remedy = f"Does the mirror in /etc/apt have {debian}? Ubuntu has it on another mirror"
        log.run([*command, "update"], remedy=remedy)
    download = ["install", "-y", "--no-install-recommends", "--download-only", *packages]
    log.run([*command, *download], remedy=remedy)
    for archive in sorted(state.glob("cache/archives/*.deb")):
        log.run(["dpkg", "-x", archive, place])
    shutil.rmtree(state)
