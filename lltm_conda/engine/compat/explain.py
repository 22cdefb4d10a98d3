"""Turns verdicts into the one cause that the user reads."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ..project import Project
from . import faults, fixes, support
from .host_probe import environment
from .package_files import source_root
from .records import BinaryRecord, Finding, Runtime
from .selection import Selection
from .text import printable, some


def explain(
    selection: Selection,
    runtime: Runtime,
    paths: list[Path],
    distrusted: Finding | None = None,
) -> Finding:
    """The one cause of an incomplete selection.

    `paths` are the shared objects that were found; `distrusted` says why the build cache was
    refused, if it was.
    """
    platforms = support.load(runtime.project.folder).platforms
    if runtime.platform not in platforms:
        why = f"there is no binary for {runtime.platform}"
        needed, fix = " or ".join(platforms), fixes.without_binaries(runtime.project)
        return Finding.rejected("platform", runtime.platform, needed, why, fix)
    cause = selection.cause
    if cause is not None:
        return cause
    if distrusted is not None:
        return distrusted
    if not paths:
        return no_binaries(runtime)
    observed = some([path.name for path in paths], 20)
    if selection.forced:
        variable = runtime.project.variable("VARIANT")
        why = f"the variant {selection.forced} asked for by {variable} is not installed"
        return _package_files(observed, selection.forced, why, f"unset {variable}")
    kind, wanted = ("kernels", "kernels-cpu.so") if selection.glue else ("glue", "a glue")
    why = f"the installed package holds no {kind}"
    return _package_files(observed, wanted, why, fixes.reinstall(runtime))


def _package_files(observed: str, needed: str, why: str, fix: str) -> Finding:
    fault = faults.PACKAGE_FILES
    return Finding.rejected("package files", printable(observed), needed, why, fix, fault)


def no_binaries(runtime: Runtime) -> Finding:
    """No shared object was found: a source folder, or an installation that lost its files."""
    package = runtime.project.folder
    installed = installed_copies(package)
    needed = "binaries built for this torch"
    if source_root(package) != package.parent:
        observed, needed = f"no shared object in {package / 'lib'}", "a glue and its kernels"
        why, fix = "the installed package holds no binaries", fixes.reinstall(runtime)
    elif installed:
        observed = f"{package}, a source folder"
        needed = f"the installed package {printable(installed[0])}"
        why, fix = (
            "the source folder shadows the installed package",
            "start Python in another folder",
        )
    else:
        observed = f"{package}, a source folder without binaries"
        why = f"{runtime.project.distribution} was not built here yet"
        fix = "python -m pip install . --no-build-isolation"
        fix = f"{fix}   (or: {fixes.build(runtime.project)})"
    return _package_files(observed, needed, why, fix)


def describe_copy(other: Path, package: Path) -> str:
    """Describes a second copy of the package on the path, and says what to do."""
    if not (other / "__init__.py").exists():
        # Without it Python imports the folder as an empty namespace package.
        return f"left over from a removed installation: {other}; to mend: delete that folder"
    both = f"{other} (in use: {package})"
    return f"another copy is on the path: {both}; to mend: uninstall the one you do not want"


def installed_copies(package: Path) -> list[Path]:
    """Other folders on the path of this Python that have the package's name and binaries."""
    found = []
    for entry in sys.path:
        folder = Path(entry or ".") / package.name
        try:
            if (folder / "lib").is_dir() and folder.resolve() != package.resolve():
                found.append(folder)
        except (OSError, RuntimeError):
            continue
    return found


# The words that ld.so(8) replaces in a path before it opens the file.
_LINKER_WORD = re.compile(r"\$(\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")


def unusable_path(path: Path) -> Finding | None:
    """The dynamic linker would change this path and open another file; None if it would not."""
    word = _LINKER_WORD.search(str(path))
    if word is None:
        return None
    why = f"the path of {printable(path.name)} holds {word[0]}, which the dynamic linker replaces"
    needed, fix = f"a path without {word[0]}", "rename or move that folder, and start Python again"
    return Finding.rejected("path", printable(path), needed, why, fix, faults.PACKAGE_FILES)


def load_failure(binary: BinaryRecord, runtime: Runtime, error: OSError) -> Finding:
    # torch >= 2.9 hides the linker's text behind "Could not load this library".
    text = printable(str(error.__cause__ or error))
    known = faults.classify(text)
    title = f" ({known.title})" if known else ""
    why = f"{binary.file} was accepted but could not be loaded{title}"
    needed = f"{binary.file} accepted by the dynamic linker"
    return Finding.rejected("loading", text, needed, why, fixes.fit_torch(runtime), known)


def other_object(binary: BinaryRecord, reported: str) -> Finding:
    """The object that was loaded does not report the record of the file."""
    why = f"{binary.file} on disk is not the one that is loaded in this process"
    written = binary.record.text if binary.record else "a build record in the file"
    fault, observed = faults.PACKAGE_FILES, printable(reported) or "nothing"
    return Finding.rejected("build record", observed, written, why, "restart Python", fault)


def refused_kernels(kernels: BinaryRecord, refusal: bytes, runtime: Runtime) -> Finding:
    why, needed = f"the glue refused {kernels.file}", "kernels of the same build as the glue"
    fault, fix = faults.PACKAGE_FILES, fixes.reinstall(runtime)
    return Finding.rejected("kernel table", printable(refusal), needed, why, fix, fault)


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
    return Finding.rejected("CUDA kernels", observed, needed, why, fix, fault)


def no_cuda_build(version: str, project: Project) -> Finding:
    """There are CUDA tensors, but torch was a CPU build when the package was loaded."""
    fix = fixes.cuda_torch(environment(project), None)
    why, observed = "torch is a CPU-only build", f"torch {version}"
    fault = faults.CPU_TORCH_SWAPPED_IN
    return Finding.rejected("CUDA kernels", observed, "a CUDA build of torch", why, fix, fault)


def refused_forced_name(forced: str, error: ValueError, project: Project) -> Finding:
    name, needed = project.variable("VARIANT"), "the name of a variant, or nothing"
    return Finding.rejected(name, repr(forced), needed, str(error), f"unset {name}")


def no_torch(error: Exception, project: Project) -> Finding:
    missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
    here, needed = environment(project), "a torch that can be imported"
    why = "torch is not installed" if missing else "import torch fails"
    fix = fixes.install_torch(here, project) if missing else fixes.reinstall_torch(here, None)
    observed, fault = printable(f"{type(error).__name__}: {error}"), faults.TORCH_NOT_LOADED
    return Finding.rejected("torch", observed, needed, why, fix, fault)


def not_pytorch(module: object, error: Exception) -> Finding:
    observed, why = printable(str(getattr(module, "__file__", None))), printable(str(error))
    needed, fix = "the torch package of PyTorch", "rename the file or folder that shadows it"
    return Finding.rejected("torch", observed, needed, why, fix, faults.TORCH_NOT_LOADED)
