"""Environments with torch, made by uv from PyPI or from what the user's pip settings name."""

from collections.abc import Sequence
from pathlib import Path

from release import downloads
from release.paths import ENVS, fresh
from release.shell import Log
from release.tasks import Context

REMEDY = "Is the package index in reach? PIP_INDEX_URL and PIP_FIND_LINKS are used"


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
    downloads.uv(log, ["venv", "--quiet", "--clear", "--python", python, folder])
    interpreter = folder / "bin" / "python"
    words = ["pip", "install", "--python", interpreter, *requirements]
    words += ["--cache-dir", cache] if cache else []
    if borrowed:
        without = folder / "without-torch.txt"
        without.write_text('torch; python_version < "3"\n', encoding="utf-8")
        words += ["--override", without]
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    downloads.uv(log, words, find_links=find_links, remedy=REMEDY)
    return interpreter
