"""Installs torches and wheels into folders of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from torchship.release.matrix.load import load_settings
from torchship.release.run.shell import Log
from torchship.release.steps.compile.downloads import uv


def install(work: Path, *arguments: str, keeps_cache: bool = False) -> None:
    """Runs `uv pip install`; PIP_FIND_LINKS serves only releases with a local version (`+cpu`).

    With `keeps_cache`, what is downloaded stays in `work / "uv-cache"`.
    """
    cache = ("--cache-dir", str(work / "uv-cache")) if keeps_cache else ("--no-cache",)
    with Log(work / "uv.log", load_settings()) as log:
        uv(log, ["pip", "install", *cache, *arguments], find_links="+" in arguments[-1])


def torch_in(
    work: Path, version: str, *flags: str, python: str = "3.11", keeps_cache: bool = False
) -> Path:
    """The folder with this torch for a Python; installs the torch if the folder lacks it."""
    folder = work / "torch" / (version if python == "3.11" else f"{version}-py{python}")
    if not (folder / "torch").exists():
        shutil.rmtree(folder, ignore_errors=True)
        where = ("--target", str(folder), "--python-version", python)
        install(work, *flags, *where, f"torch=={version}", keeps_cache=keeps_cache)
    return folder


def symbols(which: str, *files: Path) -> frozenset[str]:
    """The dynamic symbols of files, without their versions; `which` is an option of nm."""
    command = ["nm", "-D", which, *map(str, files)]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    names = (line.rpartition(" ")[2].partition("@")[0] for line in listing.splitlines())
    return frozenset(name for name in names if name)


@cache
def exported(folder: Path) -> frozenset[str]:
    """The symbols that this Python and the libraries of the torch in `folder` define."""
    program = Path(sys.executable).resolve()
    files = [program, *program.parents[1].glob("lib/libpython3.*.so.1.0")]
    return symbols("--defined-only", *files, *(folder / "torch" / "lib").glob("*.so*"))
