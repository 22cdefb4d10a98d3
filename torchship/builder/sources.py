"""The C++ and CUDA sources, and the commit that they come from."""

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..doctor import cache as places
from ..doctor.project import Project
from .programs import BuildError, output_of

#: The package that contains this engine; in a checkout, the checkout.
_PACKAGE = Path(__file__).resolve().parents[2]
#: torchship's own C++: headers, and the sources that are part of every glue.
INCLUDE = Path(__file__).resolve().parents[1] / "include"
#: The parts of torchship that no client's package holds, since run time does not need them.
NOT_PACKED = ("command", "porting", "project", "release", "templates")


def source_root(package: Path = _PACKAGE) -> Path:
    """The `csrc` folder: inside an installed package, or beside the package in a checkout."""
    package = package.resolve()
    root = places.source_root(package)
    if root is None:
        raise BuildError(
            f"the C++ sources of {package.name} are missing: looked for csrc in {package} and "
            f"{package.parent}; reinstall the package"
        )
    return root / "csrc"


def include_dirs(root: Path) -> tuple[Path, Path]:
    """The folders in which a compiler finds torchship's headers, and the project's `project.h`."""
    return INCLUDE, root


def glue_sources(root: Path, lane: str) -> list[Path]:
    """The sources of the glue of a lane, "aten" or "stable", in the order to link them."""
    own = INCLUDE / "torchship"
    folders = (own, own / f"torch_{lane}", root / "ops")
    return [path for folder in folders for path in sorted(folder.glob("*.cpp"))]


def kernel_sources(root: Path, device: str) -> list[Path]:
    """The sources of the kernels for a device, "cpu" or "cuda"."""
    folder = root / "kernels" / device
    return sorted([*folder.rglob("*.cpp"), *folder.rglob("*.cu")])


def linked_sources(lane: str, *, cuda: bool) -> list[Path]:
    """The sources of one object with the glue of `lane`, CPU kernels and, if `cuda`, CUDA kernels.

    CMake and torch.utils.cpp_extension build such objects. The build must define
    PROJECT_LINKED_CPU for CPU kernels, and PROJECT_LINKED_CUDA for CUDA kernels, and search the
    `include_dirs` for headers.
    """
    root = source_root()
    kernels = kernel_sources(root, "cpu") + (kernel_sources(root, "cuda") if cuda else [])
    return [*glue_sources(root, lane), *kernels]


def kernel_abi(root: Path | None = None) -> int:
    """The value of ..._KERNEL_ABI in the headers of `csrc/kernels`; 0 if none defines it."""
    for header in sorted(((root or source_root()) / "kernels").glob("*.h")):
        content = header.read_text(encoding="utf-8")
        if match := re.search(r"^#define \w+_KERNEL_ABI (\d+)$", content, re.MULTILINE):
            return int(match[1])
    return 0


@cache
def _git(project: Project, *arguments: str) -> str | None:
    """The first line that git prints for the checkout; None if there is no checkout or no git."""
    checkout = project.folder.resolve().parent
    with suppress(BuildError):
        if (checkout / ".git").exists():
            output = output_of(["git", "-C", str(checkout), *arguments], "install git")
            return output.partition("\n")[0] or None
    return None


def _carried(project: Project, fact: str) -> str:
    """The fact `commit` or `epoch` that setup.py wrote into the distribution; "" if none."""
    path = project.folder / "source.json"
    return str(json.loads(path.read_text("utf-8")).get(fact, "")) if path.is_file() else ""


def git_commit(project: Project, env: Mapping[str, str]) -> str:
    """The sources' commit, from `$PREFIX_GIT_COMMIT`, git or the distribution; else "unknown"."""
    return (
        env.get(project.variable("GIT_COMMIT"))
        or _git(project, "rev-parse", "HEAD")
        or _carried(project, "commit")
        or "unknown"
    )


def source_epoch(project: Project, env: Mapping[str, str]) -> str:
    """The date of the sources' commit, in seconds since 1970; "" if unknown.

    SOURCE_DATE_EPOCH counts only if git and the distribution do not know the date, because
    conda's tools set it to the time of the build.
    """
    seconds = (
        _git(project, "log", "-1", "--format=%ct")
        or _carried(project, "epoch")
        or env.get("SOURCE_DATE_EPOCH", "")
    )
    return seconds if seconds.isdigit() else ""


def source_date(project: Project, env: Mapping[str, str]) -> str:
    """The commit's date as text, or "unknown". A build date would make builds irreproducible."""
    seconds = source_epoch(project, env)
    if not seconds:
        return "unknown"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds)))
