"""Virtual environments, made by uv from PyPI or what the user's pip settings point to."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from release import ReleaseError, downloads
from release.paths import fresh
from release.shell import Log

REMEDY = "Is the package index in reach? PIP_INDEX_URL and PIP_FIND_LINKS are honoured"


def index_options(*, find_links: bool = True) -> list[str]:
    """uv does not read pip's settings, so they are handed on; folders of wheels if wanted."""
    options: list[str] = []
    if url := os.environ.get("PIP_INDEX_URL"):
        options += ["--index-url", url]
    for url in shlex.split(os.environ.get("PIP_EXTRA_INDEX_URL", "")):
        options += ["--extra-index-url", url]
    for link in shlex.split(os.environ.get("PIP_FIND_LINKS", "") if find_links else ""):
        options += ["--find-links", link]
    return options


def make_venv(
    log: Log,
    folder: Path,
    python: str,
    requirements: Sequence[str | Path],
    *,
    cache: Path | None = None,
    borrowed: Path | None = None,
    find_links: bool = True,
) -> Path:
    """A new environment with the requirements in it; the path of its interpreter.

    Its files are hard links into uv's cache; one of its own (`cache`) can be deleted with it. With
    `borrowed`, torch is not installed but found in that site-packages folder.
    """
    if folder.exists():
        fresh(folder)
    downloads.uv(log, ["venv", "--quiet", "--clear", "--python", python, folder])
    interpreter = folder / "bin" / "python"
    options = index_options(find_links=find_links)
    words = ["pip", "install", "--python", interpreter, *options, *requirements]
    words += ["--cache-dir", cache] if cache else []
    if borrowed:
        without = folder / "without-torch.txt"
        without.write_text('torch; python_version < "3"\n', encoding="utf-8")
        words += ["--override", without]
        (site_packages(folder) / "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    downloads.uv(log, words, remedy=REMEDY)
    return interpreter


def site_packages(folder: Path) -> Path:
    found = sorted(folder.glob("lib/python*/site-packages"))
    if len(found) != 1:
        raise ReleaseError(f"{folder} holds {len(found)} site-packages, needs one; delete it")
    return found[0]
