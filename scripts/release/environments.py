"""Environments with torch, made by uv from PyPI or from what the user's pip settings name.

A download whose hash is wrong is fetched once more; wrong twice is a failure.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.paths import ENVS, fresh, tool
from release.shell import CommandFailed, Log, clean_env
from release.tasks import Context

REMEDY = "Is the package index in reach? PIP_INDEX_URL and PIP_FIND_LINKS are used"
# How uv and pip report a wrong hash.
WRONG_HASH = re.compile(r"hash(es)? (mismatch|do not match)|do not match the hashes", re.IGNORECASE)
TWICE = (
    "The hash of a download was wrong twice: the index, or a proxy before it, serves another file "
    "than it announces; try again later, or name another index in PIP_INDEX_URL"
)


def torch_env(
    context: Context, *, python: str, release: str, name: str, cache: Path | None, find_links: bool
) -> Sequence[Path]:
    """The environment `name` with torch, to compile against; see :func:`make_venv`."""
    folder, wanted = ENVS / name, [f"torch=={release}", "numpy"]
    make_venv(context.log, folder, python, wanted, cache=cache, find_links=find_links)
    return [folder]


def borrowed_env(context: Context, *, root: Path, name: str) -> Sequence[Path]:
    """The torch of another environment to compile against, as a link to its package folder."""
    folder = fresh(ENVS / name)
    site = folder / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    (site / "torch").symlink_to(root)
    context.log.write(f"torch of {root}")
    return [folder]


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
    """Makes a new environment and returns the path of its interpreter.

    Args:
        folder: where it goes; what is there is deleted.
        python: the interpreter that it is made from.
        cache: uv's cache for it, None for the user's. The files are hard links into the cache: to
            free the disk, both must be deleted, so the cache must be its own.
        borrowed: a site-packages folder whose torch it uses instead of installing one.
        find_links: whether the folders of wheels in PIP_FIND_LINKS are used.
    """
    if folder.exists():
        fresh(folder)
    uv(log, ["venv", "--quiet", "--clear", "--python", python, folder])
    interpreter = folder / "bin" / "python"
    words = ["pip", "install", "--python", interpreter, *requirements]
    words += ["--cache-dir", cache] if cache else []
    if borrowed:
        without = folder / "without-torch.txt"
        without.write_text('torch; python_version < "3"\n', encoding="utf-8")
        words += ["--override", without]
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    uv(log, words, find_links=find_links, remedy=REMEDY)
    return interpreter


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
