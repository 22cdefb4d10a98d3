"""Which commit is built, and its date; two builds of one commit are equal."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.builder import sources
from release import PROJECT, REPO
from release.shell import output_of
from release.store import digest, relative

STATUS = ("git", "status", "--porcelain", "--untracked-files=normal")
# What it means that a field of Identity has changed.
CHANGES = (
    "the checkout was moved from {} to {}",
    "source files were changed",
    "source files were written again",
    "files were changed, added or removed",
)


def commit() -> str:
    return sources.git_commit(PROJECT, os.environ)


class Identity(NamedTuple):
    """The state of the checkout at one moment.

    `sources` is a hash over the commit and the files, `written` one over their times. Moving the
    checkout to another commit and back writes the files again, which changes `written`.
    """

    head: str | None
    sources: str
    written: str
    clean: bool

    def change(self, later: Identity) -> str:
        """Describes the change between two states; empty if there is none."""
        pairs = zip(self, later, CHANGES, strict=True)
        return next((text.format(old, new) for old, new, text in pairs if old != new), "")


def identity(files: Iterable[Path]) -> Identity:
    """The identity of the checkout now; nothing is cached."""
    files = sorted(files)
    written = [f"{relative(path)}\0{path.stat().st_mtime_ns}" for path in files]
    return Identity(
        head=(output_of("git", "rev-parse", "HEAD", cwd=REPO) or "").strip() or None,
        clean=output_of(*STATUS, cwd=REPO) == "",
        sources=source_identity(files),
        written=hashlib.sha256(os.fsencode("\n".join(written))).hexdigest(),
    )


def source_epoch() -> int:
    """The commit's date in seconds since 1970; without git, a recorded or a fixed date."""
    # 2020-01-01; zip files have no years before 1980.
    return int(sources.source_epoch(PROJECT, os.environ) or 1577836800)


def source_env() -> dict[str, str]:
    """Environment variables for builds outside the checkout, which cannot ask git."""
    return {"SOURCE_DATE_EPOCH": str(source_epoch()), PROJECT.variable("GIT_COMMIT"): commit()}


def source_identity(files: Iterable[Path]) -> str:
    """A hash over the commit and the files; artefacts with the same hash may be joined."""
    lines = [commit(), str(source_epoch())]
    lines += [f"{relative(path)}\0{digest(path)}" for path in files]
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()
