"""From verdicts to the one cause that the user reads, and its text."""

from __future__ import annotations

import sys
from pathlib import Path

from . import faults, fixes
from .host_probe import environment
from .package_files import source_root
from .records import REJECTED, BinaryRecord, Finding, Runtime
from .selection import Selection
from .text import printable, some


def explain(
    selection: Selection,
    runtime: Runtime,
    paths: list[Path],
    package: Path,
    distrusted: Finding | None = None,
) -> Finding:
    """The one cause of a selection that is not complete.

    Args:
        selection: what was judged.
        runtime: what it was judged against.
        paths: the shared objects that there are.
        package: the folder of the Python files.
        distrusted: why the build cache was refused, if it was.
    """
    if runtime.platform != "linux-x86_64":
        why = f"there is no binary for {runtime.platform}"
        needed = "linux-x86_64"
        return Finding("platform", REJECTED, runtime.platform, needed, why, fixes.REFERENCE)
    cause = selection.cause
    if cause is not None:
        return cause
    if distrusted is not None:
        return distrusted
    if not paths:
        return no_binaries(runtime, package)
    kind = "glue" if selection.glue is None else "kernels"
    if selection.forced:
        fix = "unset LLTM_CONDA_VARIANT"
        why = f"the variant {selection.forced} asked for by LLTM_CONDA_VARIANT is not installed"
    else:
        fix = fixes.reinstall(runtime)
        why = f"the installed package holds no {kind}"
    observed = some([path.name for path in paths], 20)
    wanted = selection.forced or ("a glue" if kind == "glue" else "kernels-cpu.so")
    return _package_files(observed, wanted, why, fix)


def _package_files(observed: str, needed: str, why: str, fix: str) -> Finding:
    fault = faults.PACKAGE_FILES
    return Finding("package files", REJECTED, printable(observed), needed, why, fix, fault)


def no_binaries(runtime: Runtime, package: Path) -> Finding:
    """There is no shared object: a source folder, or an installation that lost its files."""
    if source_root(package) != package.parent:
        return _package_files(
            f"no shared object in {package / 'lib'}",
            "a glue and its kernels",
            "the installed package holds no binaries",
            fixes.reinstall(runtime),
        )
    installed = installed_copies(package)
    if installed:
        return _package_files(
            f"{package}, a source folder",
            f"the installed package {printable(installed[0])}",
            "the source folder shadows the installed package",
            "start Python in another folder",
        )
    return _package_files(
        f"{package}, a source folder without binaries",
        "binaries built for this torch",
        "lltm was not built here yet",
        f"python -m pip install . --no-build-isolation   (or: {fixes.BUILD})",
    )


def installed_copies(package: Path) -> list[Path]:
    """Other folders of the package's name, with binaries, on the path of this Python."""
    found = []
    for entry in sys.path:
        folder = Path(entry or ".") / package.name
        try:
            if (folder / "lib").is_dir() and folder.resolve() != package.resolve():
                found.append(folder)
        except (OSError, RuntimeError):
            continue
    return found


def load_failure(binary: BinaryRecord, runtime: Runtime, error: OSError) -> Finding:
    """The dynamic linker refused what the judge had accepted."""
    # torch >= 2.9 hides the linker's text behind "Could not load this library".
    text = printable(str(error.__cause__ or error))
    known = faults.classify(text)
    title = f" ({known.title})" if known else ""
    return Finding(
        "loading",
        REJECTED,
        text,
        f"{binary.file} accepted by the dynamic linker",
        why=f"{binary.file} was accepted but could not be loaded{title}",
        fix=fixes.fit_torch(runtime),
        fault=known.number if known else None,
    )


def no_cuda(selection: Selection | None, runtime: Runtime) -> Finding:
    """Why there are no CUDA kernels although torch is a CUDA build."""
    for verdict in selection.considered if selection else ():
        if verdict.binary.file.startswith("kernels-cuda") and verdict.cause is not None:
            return verdict.cause
    forced = selection.forced if selection else None
    observed = "CPU kernels only"
    fix = f"{fixes.fit_torch(runtime)}   (or: {fixes.BUILD})"
    if forced:
        observed = f"variant {forced}, forced by LLTM_CONDA_VARIANT"
        fix = "unset LLTM_CONDA_VARIANT"
    return Finding(
        "CUDA kernels",
        REJECTED,
        observed,
        "kernels for CUDA tensors",
        why="the installed package holds no CUDA kernels that fit",
        fix=fix,
        fault=faults.CPU_ONLY_BINARY,
    )


def refused_forced_name(forced: str, error: ValueError) -> Finding:
    """LLTM_CONDA_VARIANT holds something else than the name of a variant."""
    name, needed = "LLTM_CONDA_VARIANT", "the name of a variant, or nothing"
    return Finding(name, REJECTED, repr(forced), needed, str(error), f"unset {name}")


def no_torch(error: Exception, package: Path) -> Finding:
    """`import torch` raised this."""
    missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
    here = environment(package)
    return Finding(
        "torch",
        REJECTED,
        printable(f"{type(error).__name__}: {error}"),
        "a torch that can be imported",
        why="torch is not installed" if missing else "import torch fails",
        fix=fixes.install_torch(here) if missing else fixes.reinstall_torch(here, None),
        fault=faults.TORCH_NOT_LOADED,
    )


def not_pytorch(module: object, error: Exception) -> Finding:
    """What is called torch is something else."""
    return Finding(
        "torch",
        REJECTED,
        printable(str(getattr(module, "__file__", None))),
        "the torch package of PyTorch",
        why=printable(str(error)),
        fix="rename the file or folder that shadows it",
        fault=faults.TORCH_NOT_LOADED,
    )
