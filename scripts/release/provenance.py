"""Which commit is built, and its date; two builds of one commit are equal."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from engine.builder.sources import git_commit, source_date
from release import PROJECT, REPO
from release.store import digest, relative


def commit() -> str:
    """The commit of the checkout, or "unknown"."""
    return git_commit(PROJECT, os.environ)


def is_clean() -> bool:
    """Whether the checkout is a commit with nothing changed, added or removed."""
    command = ["git", "status", "--porcelain", "--untracked-files=normal"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    return done.returncode == 0 and not done.stdout.strip()


def source_epoch() -> int:
    """The commit's date in seconds since 1970; a fixed date without git."""
    text = source_date(PROJECT, os.environ)
    if text == "unknown":
        return 1577836800  # 2020-01-01, zip files know no year before 1980
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def source_env() -> dict[str, str]:
    """Environment variables for builds outside the checkout, which cannot ask git."""
    return {"SOURCE_DATE_EPOCH": str(source_epoch()), PROJECT.variable("GIT_COMMIT"): commit()}


def source_identity(files: Iterable[Path]) -> str:
    """A hash over the commit and the files; artefacts with the same hash may be joined."""
    lines = [commit(), str(source_epoch())]
    lines += [f"{relative(path)}\0{digest(path)}" for path in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
