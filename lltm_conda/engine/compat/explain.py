"""Turns verdicts into the one cause that the user reads."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ..project import Project
from . import faults, fixes, support
from .host_probe import environment
from .package_files import source_root
from .records import REJECTED, BinaryRecord, Finding, Runtime
from .selection import Selection
from .text import printable, some


def explain(
    selection: Selection,
    runtime: Runtime,
    paths: list[Path],
    distrusted: Finding | None = None,
) -> Finding:
    """The one cause of a selection that is not complete.

    `paths` are the shared objects that there are; `distrusted` says why the build cache was
    refused, if it was.
    """
    platforms = support.load(runtime.project.folder).platforms
    if runtime.platform not in platforms:
        why = f"there is no binary for {runtime.platform}"
        needed, fix = " or ".join(platforms), fixes.without_binaries(runtime.project)
        return Finding("platform", REJECTED, runtime.platform, needed, why, fix)
    cause = selection.cause
    if cause is not None:
        return cause
    if distrusted is not None:
        return distrusted
    if not paths:
        return no_binaries(runtime)
    kind = "glue" if selection.glue is None else "kernels"
    if selection.forced:
        variable = runtime.project.variable("VARIANT")
        fix = f"unset {variable}"
        why = f"the variant {selection.forced} asked for by {variable} is not installed"
    else:
        fix = fixes.reinstall(runtime)
        why = f"the installed package holds no {kind}"
    observed = some([path.name for path in paths], 20)
    wanted = selection.forced or ("a glue" if kind == "glue" else "kernels-cpu.so")
    return _package_files(observed, wanted, why, fix)


def _package_files(observed: str, needed: str, why: str, fix: str) -> Finding:
    fault = faults.PACKAGE_FILES
    return Finding("package files", REJECTED, printable(observed), needed, why, fix, fault)


def no_binaries(runtime: Runtime) -> Finding:
    """There is no shared object: a source folder, or an installation that lost its files."""
    package = runtime.project.folder
    if source_root(package) != package.parent:
        return _package_files(
            f"no shared object in {package / 'lib'}",
            "a glue and its kernels",
            "the installed package holds no binaries",
            fixes.reinstall(runtime),
        )
    installed = installed_copies(package)
    if installed:
        observed = f"{package}, a source folder"
        needed = f"the installed package {printable(installed[0])}"
        why = "the source folder shadows the installed package"
        return _package_files(observed, needed, why, "start Python in another folder")
    observed = f"{package}, a source folder without binaries"
    why = f"{runtime.project.distribution} was not built here yet"
    fix = "python -m pip install . --no-build-isolation"
    fix = f"{fix}   (or: {fixes.build(runtime.project)})"
    return _package_files(observed, "binaries built for this torch", why, fix)


def describe_copy(other: Path, package: Path) -> str:
    """A copy that is on the path beside the one in use, and what to do."""
    if not (other / "__init__.py").exists():
        # Without it Python imports the folder as an empty namespace package.
        return f"left over from a removed installation: {other}; to mend: delete that folder"
    both = f"{other} (in use: {package})"
    return f"another copy is on the path: {both}; to mend: uninstall the one you do not want"


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


# What ld.so(8) replaces in a path that it opens.
_LINKER_WORD = re.compile(r"\$(\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")


def unusable_path(path: Path) -> Finding | None:
    """The dynamic linker would open another file than this one; None where it would not."""
    word = _LINKER_WORD.search(str(path))
    if word is None:
        return None
    why = f"the path of {printable(path.name)} holds {word[0]}, which the dynamic linker replaces"
    needed, fix = f"a path without {word[0]}", "rename or move that folder, and start Python again"
    return Finding("path", REJECTED, printable(path), needed, why, fix, faults.PACKAGE_FILES)


def load_failure(binary: BinaryRecord, runtime: Runtime, error: OSError) -> Finding:
    # torch >= 2.9 hides the linker's text behind "Could not load this library".
    text = printable(str(error.__cause__ or error))
    known = faults.classify(text)
    title = f" ({known.title})" if known else ""
    why = f"{binary.file} was accepted but could not be loaded{title}"
    needed = f"{binary.file} accepted by the dynamic linker"
    return Finding("loading", REJECTED, text, needed, why, fixes.fit_torch(runtime), known)


def other_object(binary: BinaryRecord, reported: str) -> Finding:
    """The object that was loaded does not report the record of the file."""
    why = f"{binary.file} on disk is not the one that is loaded in this process"
    written = binary.record.text if binary.record else "a build record in the file"
    fault, observed = faults.PACKAGE_FILES, printable(reported) or "nothing"
    return Finding("build record", REJECTED, observed, written, why, "restart Python", fault)


def refused_kernels(kernels: BinaryRecord, refusal: bytes, runtime: Runtime) -> Finding:
    why, needed = f"the glue refused {kernels.file}", "kernels of the same build as the glue"
    fault, fix = faults.PACKAGE_FILES, fixes.reinstall(runtime)
    return Finding("kernel table", REJECTED, printable(refusal), needed, why, fix, fault)


def no_cuda(selection: Selection, runtime: Runtime) -> Finding:
    """Why there are no CUDA kernels although torch is a CUDA build."""
    for verdict in selection.considered:
        if verdict.binary.file.startswith("kernels-cuda") and verdict.cause is not None:
            return verdict.cause
    observed, needed = "CPU kernels only", "kernels for CUDA tensors"
    fix, build = fixes.fit_torch(runtime), fixes.build(runtime.project)
    fix = fix if fix == build else f"{fix}   (or: {build})"
    if selection.forced:
        variable = runtime.project.variable("VARIANT")
        observed = f"variant {selection.forced}, forced by {variable}"
        fix = f"unset {variable}"
    why = "the installed package holds no CUDA kernels that fit"
    fault = faults.CPU_ONLY_BINARY
    return Finding("CUDA kernels", REJECTED, observed, needed, why, fix, fault)


def no_cuda_build(version: str, project: Project) -> Finding:
    """There are CUDA tensors, and torch was a CPU build when the package was loaded."""
    fix = fixes.cuda_torch(environment(project), None)
    why, observed = "torch is a CPU-only build", f"torch {version}"
    fault = faults.CPU_TORCH_SWAPPED_IN
    return Finding("CUDA kernels", REJECTED, observed, "a CUDA build of torch", why, fix, fault)


def refused_forced_name(forced: str, error: ValueError, project: Project) -> Finding:
    name, needed = project.variable("VARIANT"), "the name of a variant, or nothing"
    return Finding(name, REJECTED, repr(forced), needed, str(error), f"unset {name}")


def no_torch(error: Exception, project: Project) -> Finding:
    missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
    here = environment(project)
    why = "torch is not installed" if missing else "import torch fails"
    fix = fixes.install_torch(here, project) if missing else fixes.reinstall_torch(here, None)
    observed = printable(f"{type(error).__name__}: {error}")
    return _torch(observed, "a torch that can be imported", why, fix)


def not_pytorch(module: object, error: Exception) -> Finding:
    observed = printable(str(getattr(module, "__file__", None)))
    fix = "rename the file or folder that shadows it"
    return _torch(observed, "the torch package of PyTorch", printable(str(error)), fix)


def _torch(observed: str, needed: str, why: str, fix: str) -> Finding:
    return Finding("torch", REJECTED, observed, needed, why, fix, faults.TORCH_NOT_LOADED)
