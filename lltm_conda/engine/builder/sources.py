"""Where the C++ and CUDA sources are, and which commit they come from."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..._project import PROJECT
from ..project import Project
from .programs import BuildError, output_of


def source_root(project: Project = PROJECT) -> Path:
    """The `csrc` folder: inside an installed package, or beside the package in a checkout."""
    for root in (project.folder / "csrc", project.folder.parent / "csrc"):
        if (root / "project.h").is_file():
            return root
    raise BuildError(
        f"the C++ sources of {project.distribution} are missing: looked for csrc in "
        f"{project.folder} and {project.folder.parent}; reinstall {project.distribution}"
    )


def glue_sources(project: Project, lane: str) -> list[Path]:
    """What the glue of a lane is compiled from."""
    root = source_root(project)
    folders = ("engine", f"engine/torch_{lane}", "ops")
    return sorted(path for folder in folders for path in (root / folder).glob("*.cpp"))


def kernel_sources(project: Project, device: str) -> list[Path]:
    """What the kernels of a device, "cpu" or "cuda", are compiled from."""
    folder = source_root(project) / "kernels" / device
    found = sorted([*folder.glob("*.cpp"), *folder.glob("*.cu")])
    if not found:
        raise BuildError(
            f"{project.distribution} has no {device} kernels: {folder} holds no sources; leave "
            f"{device} out of what is asked for"
        )
    return found


def linked_sources(lane: str, *, cuda: bool, project: Project = PROJECT) -> list[Path]:
    """The sources of one object that holds the glue of `lane` and its kernels.

    A build for one torch on one machine, with CMake or torch.utils.cpp_extension, needs no kernel
    table: it leaves out `table.cpp`, and tells `csrc/ops/register.cpp` what it links.
    """
    devices = [device for device in project.kernels if device == "cpu" or cuda]
    kernels = [path for device in devices for path in kernel_sources(project, device)]
    return sorted(
        path for path in (*glue_sources(project, lane), *kernels) if path.name != "table.cpp"
    )


def kernel_abi(project: Project = PROJECT) -> int:
    """What a header of `csrc/kernels` defines as ..._KERNEL_ABI; 0 where no kernels are."""
    for header in sorted((source_root(project) / "kernels").glob("*.h")):
        text = header.read_text(encoding="utf-8")
        if found := re.search(r"^#define \w+_KERNEL_ABI (\d+)$", text, re.MULTILINE):
            return int(found[1])
    return 0


@cache
def _git(checkout: Path, *arguments: str) -> str | None:
    if not (checkout / ".git").exists():
        return None
    try:
        said = output_of(["git", "-C", str(checkout), *arguments], "install git")
    except BuildError:
        return None
    return said.partition("\n")[0] or None


def git_commit(env: Mapping[str, str], project: Project = PROJECT) -> str:
    """The commit the sources come from: `<PREFIX>_GIT_COMMIT`, else git, else "unknown"."""
    named = env.get(project.variable("GIT_COMMIT"))
    return named or _git(project.folder.parent, "rev-parse", "HEAD") or "unknown"


def source_date(env: Mapping[str, str], project: Project = PROJECT) -> str:
    """When the sources were made, never when they were built: builds must be reproducible."""
    seconds = env.get("SOURCE_DATE_EPOCH")
    seconds = seconds or _git(project.folder.parent, "log", "-1", "--format=%ct")
    if seconds is None or not seconds.isdigit():
        return "unknown"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds)))
