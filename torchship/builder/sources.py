"""The C++ and CUDA sources, and the commit that they come from."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..judge import cache as places
from ..judge.project import Project, checkout_of
from .options import FILE_NAME, project_file, read_options
from .programs import BuildError, output_of

#: The package that contains this engine; in a bare checkout, the checkout.
_PACKAGE = Path(__file__).resolve().parents[2]
#: torchship's own C++: headers, and the sources that are part of every glue.
INCLUDE = Path(__file__).resolve().parents[1] / "include"
#: The suffixes of the sources that a host compiler compiles, and of those for nvcc or clang.
HOST_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++")
CUDA_SUFFIXES = (".cu",)
#: The suffixes of the files that sources include.
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl", ".ipp", ".tpp")


def source_root(package: Path = _PACKAGE) -> Path:
    """The `csrc` folder: inside an installed package, or beside the package in a checkout."""
    package = package.resolve()
    root = places.source_root(package)
    if root is None:
        raise BuildError(
            f"the C++ sources of {package.name} are missing: looked for csrc in {package} and "
            f"{checkout_of(package)}; reinstall the package"
        )
    return root / "csrc"


def include_dirs(root: Path) -> tuple[Path, Path]:
    """The folders in which a compiler finds torchship's headers, and the project's `project.h`."""
    return INCLUDE, root


def glue_sources(root: Path, lane: str) -> list[Path]:
    """The sources of the glue of a lane, "aten" or "stable", in the order to link them."""
    return [*engine_sources(lane), *sources_below(root / "ops", HOST_SUFFIXES)]


def engine_sources(lane: str) -> list[Path]:
    """The sources of torchship's own that are part of every glue of a lane."""
    own = INCLUDE / "torchship"
    folders = (own, own / f"torch_{lane}")
    return [path for folder in folders for path in sorted(folder.glob("*.cpp"))]


def kernel_sources(root: Path, device: str) -> list[Path]:
    """The sources of the kernels for a device, "cpu" or "cuda"."""
    suffixes = HOST_SUFFIXES if device == "cpu" else (*HOST_SUFFIXES, *CUDA_SUFFIXES)
    return sources_below(root / "kernels" / device, suffixes)


def sources_below(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files in a folder and its subfolders that have one of the suffixes, sorted."""
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file())


def sources_of(
    project: Project, csrc: Path, patterns: Sequence[str], suffixes: Sequence[str]
) -> list[Path]:
    """The sources that the patterns name, sorted; those of a pattern after `!` are left out.

    A pattern is a file, a folder with all that is below it, or has `*`, `?` and `**`. Raises
    BuildError for a pattern that names no file.
    """
    chosen: set[Path] = set()
    left_out: set[Path] = set()
    for pattern in patterns:
        target = left_out if pattern.startswith("!") else chosen
        files = _files_of(project, csrc, pattern.removeprefix("!"))
        if not files:
            raise BuildError(
                f"`build:` of {project.distribution} names the sources {pattern!r}, but there is "
                "no such file; correct the pattern in build_matrix.yaml, or restore the file"
            )
        target.update(files)
    return sorted(path for path in chosen - left_out if path.suffix in suffixes)


def _files_of(project: Project, csrc: Path, pattern: str) -> list[Path]:
    path = project_file(csrc, project, pattern)
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file()]
    base = project_file(csrc, project, pattern.split("/")[0]).parent
    return [file for file in base.glob(pattern) if file.is_file()]


def build_inputs(project: Project, csrc: Path) -> list[Path]:
    """The files outside `csrc` that a build reads: its options, sources, headers, and the
    programs that write some."""
    options = read_options(project)
    record = project.folder / FILE_NAME
    patterns = [*(pattern for kind in options.objects for pattern in kind.sources)]
    patterns += [name for step in options.generated for name in step.inputs]
    files = {file for pattern in patterns for file in _files_of(project, csrc, pattern)}
    files.update([record] if record.is_file() else [])
    readable = (*HEADER_SUFFIXES, "")
    for name in (name for kind in options.objects for name in kind.include):
        headers = _files_of(project, csrc, name)
        files.update(file for file in headers if file.suffix in readable)
    return sorted(file for file in files if not file.is_relative_to(csrc))


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
    checkout = checkout_of(project.folder.resolve())
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
