"""Where the C++ and CUDA sources are, and which commit they come from."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .programs import BuildError, output_of

_PACKAGE = Path(__file__).resolve().parents[2]


def source_root() -> Path:
    """The `csrc` folder: inside an installed package, or beside the package in a checkout."""
    for root in (_PACKAGE / "csrc", _PACKAGE.parent / "csrc"):
        if (root / "kernels" / "lltm_kernels.h").is_file():
            return root
    raise BuildError(
        f"the C++ sources of lltm are missing: looked for csrc in {_PACKAGE} and "
        f"{_PACKAGE.parent}; reinstall lltm"
    )


def linked_sources(lane: str, *, cuda: bool) -> list[Path]:
    """The sources of one object that holds the glue of `lane` and its kernels.

    A build for one torch on one machine, with CMake or torch.utils.cpp_extension, needs no kernel
    table: it leaves out `table.cpp` and defines `LLTM_LINKED_CPU_KERNELS` and, with `cuda`,
    `LLTM_LINKED_CUDA_KERNELS`.
    """
    root = source_root()
    folders = ["kernels/cpu", "engine", f"engine/torch_{lane}"] + (["kernels/cuda"] if cuda else [])
    return sorted(
        path
        for folder in folders
        for path in (root / folder).iterdir()
        if path.suffix in (".cpp", ".cu") and path.name != "table.cpp"
    )


@cache
def _git(*arguments: str) -> str | None:
    if not (_PACKAGE.parent / ".git").exists():
        return None
    try:
        said = output_of(["git", "-C", str(_PACKAGE.parent), *arguments], "install git")
    except BuildError:
        return None
    return said.partition("\n")[0] or None


@cache
def _carried(fact: str) -> str:
    """`commit` or `epoch`, which setup.py writes beside this file into a distribution."""
    path = Path(__file__).with_name("source.json")
    return str(json.loads(path.read_text("utf-8")).get(fact, "")) if path.is_file() else ""


def git_commit(env: Mapping[str, str]) -> str:
    """The commit the sources come from: `LLTM_GIT_COMMIT`, git, the distribution, "unknown"."""
    named = env.get("LLTM_GIT_COMMIT")
    return named or _git("rev-parse", "HEAD") or _carried("commit") or "unknown"


def source_epoch(env: Mapping[str, str]) -> str:
    """When the sources were made, in seconds since 1970; "" if unknown.

    SOURCE_DATE_EPOCH comes last: conda's tools set it to the time of the build.
    """
    said = _git("log", "-1", "--format=%ct") or _carried("epoch") or env.get("SOURCE_DATE_EPOCH")
    return said if said and said.isdigit() else ""


def source_date(env: Mapping[str, str]) -> str:
    """When the sources were made, never when they were built: builds must be reproducible."""
    seconds = source_epoch(env)
    if not seconds:
        return "unknown"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds)))
