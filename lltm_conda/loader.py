"""Judge the package's binaries, load the one that fits, and say why when none does.

Nothing is `dlopen`ed before it was accepted. Facts come from the torch that is already imported;
CUDA is not touched before the first CUDA tensor (`check_cuda`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ._version import __version__
from .compat import faults, fixes, host_probe, torch_probe
from .compat.binary import read_binary
from .compat.inspect import judge_file
from .compat.judge import judge
from .compat.records import (
    OK,
    REJECTED,
    BinaryRecord,
    Device,
    Finding,
    NameFormatError,
    Runtime,
    VariantName,
    Verdict,
)
from .compat.select import Selection, select

if TYPE_CHECKING:
    import torch

LIB_DIR = Path(__file__).with_name("lib")
_MORE = "every binary and why: python -m lltm_conda"


def describe(finding: Finding, subject: str = "lltm cannot be loaded") -> str:
    """A finding as the text of an error: the cause, observed and needed, the command."""
    lines = [f"{subject}: {finding.why or finding.dimension}"]
    lines.append(f"  observed: {finding.observed}")
    lines.append(f"  needed:   {finding.needed}")
    if finding.fix:
        lines.append(f"  to mend:  {finding.fix}")
    lines.append(f"  {_MORE}")
    return "\n".join(lines)


class LLTMImportError(ImportError):
    """No binary of the package can be used here.

    Attributes:
        finding: the one cause.
        selection: every verdict that led to it, or None when it did not come so far.
    """

    def __init__(self, finding: Finding, selection: Selection | None = None) -> None:
        super().__init__(describe(finding), name="lltm_conda")
        self.finding = finding
        self.selection = selection


class LLTMCudaError(RuntimeError):
    """CUDA tensors cannot be computed on here; `finding` holds the one cause."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(describe(finding, "lltm cannot compute on this CUDA device"))
        self.finding = finding


class LoadedBinaries(NamedTuple):
    """What was loaded into this process.

    Attributes:
        variant: its name, e.g. `stable210-cu13`.
        glue, cpu: the records of the files that were loaded.
        cuda: the CUDA kernels, None when torch is no CUDA build or none was accepted.
        cuda_rejection: why there are no CUDA kernels although torch is a CUDA build.
        selection: the verdicts; None with `LLTM_CONDA_SKIP_CHECK=1`.
    """

    variant: str
    glue: BinaryRecord
    cpu: BinaryRecord
    cuda: BinaryRecord | None
    cuda_rejection: Finding | None
    selection: Selection | None


_lock = threading.Lock()
_loaded: LoadedBinaries | None = None
_checked: set[int] = set()


def loaded() -> LoadedBinaries | None:
    """What `load` loaded, or None."""
    return _loaded


def load() -> LoadedBinaries:
    """Load the binaries that fit; once per process, from any thread.

    Returns:
        What was loaded; the same object on every later call.

    Raises:
        LLTMImportError: nothing fits. Its first line is the cause, the command follows.
    """
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _load() -> LoadedBinaries:
    runtime = import_runtime()
    forced = os.environ.get("LLTM_CONDA_VARIANT") or None
    paths, distrusted = binaries(runtime)
    if os.environ.get("LLTM_CONDA_SKIP_CHECK") == "1":
        chosen, selection = _unchecked(paths, runtime, forced), None
    else:
        selection = choose(paths, runtime, forced)
        if not selection.complete:
            raise LLTMImportError(explain(selection, runtime, paths, distrusted), selection)
        assert selection.glue is not None
        assert selection.cpu is not None
        chosen = (
            selection.glue.binary,
            selection.cpu.binary,
            selection.cuda.binary if selection.cuda else None,
        )
    return _open(chosen, runtime, selection)


def choose(paths: list[Path], runtime: Runtime, forced: str | None = None) -> Selection:
    """Judge in order of preference until a glue and its kernels are accepted.

    Raises:
        LLTMImportError: when `forced` (LLTM_CONDA_VARIANT) is no name of a variant.
    """

    def judge_one(path: Path, facts: Runtime) -> Verdict:
        verdict = judge_file(path, facts, light=True)
        if verdict.binary.kind == "kernels" and _driver_decides(verdict):
            # Only kernels newer than torch's CUDA depend on the driver this early.
            from .compat.driver_probe import probe_driver

            facts = facts._replace(gpu_probed=True, driver=probe_driver())
            verdict = judge_file(verdict.binary, facts, light=True)
        return verdict

    try:
        return select(paths, runtime, judge_one, forced=forced)
    except NameFormatError as error:
        raise LLTMImportError(
            Finding(
                "LLTM_CONDA_VARIANT",
                REJECTED,
                repr(forced),
                "the name of a variant, or nothing",
                str(error),
                "unset LLTM_CONDA_VARIANT",
            )
        ) from None


def _driver_decides(verdict: Verdict) -> bool:
    cause = verdict.cause
    return cause is not None and cause.dimension == "CUDA build of torch"


def import_runtime() -> Runtime:
    """The facts for an import: of this process and the torch it has, nothing about the GPU.

    Raises:
        LLTMImportError: torch is missing or cannot be imported; the original error is the cause.
    """
    environment = host_probe.environment(Path(__file__).parent)
    facts = Runtime(
        system=host_probe.system(),
        machine=host_probe.machine(),
        python=tuple(sys.version_info[:3]),
        implementation=sys.implementation.name,
        free_threaded=host_probe.free_threaded(),
        libc=host_probe.libc(),
        package_version=__version__,
        environment=environment,
    )
    try:
        import torch
    except Exception as error:  # a broken torch raises anything from OSError to AttributeError
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        if missing:
            fix = fixes.install_torch(environment)
        else:
            fix = fixes.reinstall_torch(environment, None)
        raise LLTMImportError(
            Finding(
                "torch",
                REJECTED,
                f"{type(error).__name__}: {error}",
                "a torch that can be imported",
                "torch is not installed" if missing else "import torch fails",
                fix,
                faults.TORCH_NOT_LOADED,
            )
        ) from error
    try:
        install = torch_probe.from_module(torch)
    except torch_probe.TorchNotFoundError as error:
        raise LLTMImportError(
            Finding(
                "torch",
                REJECTED,
                str(getattr(torch, "__file__", None)),
                "the torch package of PyTorch",
                str(error),
                "rename what shadows it",
                faults.TORCH_NOT_LOADED,
            )
        ) from error
    return facts._replace(
        torch=install,
        libstdcxx=host_probe.libstdcxx(),
        registered_by=registered_by(torch),
    )


def registered_by(torch: Any) -> str | None:
    """Which file registered `torch.ops.lltm` before us; None if nobody did."""
    try:
        if not torch._C._dispatch_has_kernel("lltm::forward"):
            return None
    except (AttributeError, RuntimeError):
        return None
    path = host_probe.mapped_file("glue-")
    return "another library of this process" if path is None else str(path)


def binaries(runtime: Runtime) -> tuple[list[Path], Finding | None]:
    """The package's shared objects, then those of the user's build cache.

    Returns:
        The paths, and why the cache was not trusted (None where it was, or where none is).
    """
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        paths += sorted(LIB_DIR.glob("*.so"))
    distrusted = None
    if runtime.torch is not None:
        from .compat import cache

        try:
            if (cache.root() / cache.torch_key(runtime.torch)).is_dir():
                paths += _cached(runtime)
        except cache.CacheError as error:
            distrusted = Finding(
                "build cache",
                REJECTED,
                f"{error.path} {error.reason}",
                "folders and files that only you can write: they are code that is executed",
                f"the build cache is refused: {error.path} {error.reason}",
                error.fix,
            )
        except (OSError, RuntimeError):
            pass  # no home folder, or no permission to look into it
    return paths, distrusted


def _cached(runtime: Runtime) -> tuple[Path, ...]:
    from .compat import cache

    assert runtime.torch is not None
    sources = source_hash()
    if sources is None:
        return ()
    folder = cache.entry_folder(runtime.torch, __version__, sources)
    return cache.trusted_files(folder) if folder.is_dir() else ()


def source_root() -> Path | None:
    """The folder that holds `csrc/`: an installed package itself, or what lies round a checkout."""
    for folder in (Path(__file__).parent, Path(__file__).parents[1]):
        if (folder / "csrc" / "kernels").is_dir():
            return folder
    return None


def source_hash() -> str | None:
    """The hash of the C++ and CUDA sources beside this package, None when they are not shipped."""
    from .compat import cache

    root = source_root()
    if root is None:
        return None
    files = (path for path in (root / "csrc").rglob("*") if path.is_file())
    return cache.source_hash((str(path.relative_to(root)), path) for path in files)


def explain(
    selection: Selection,
    runtime: Runtime,
    paths: list[Path],
    distrusted: Finding | None = None,
) -> Finding:
    """The one cause of a selection that is not complete."""
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    if distrusted is not None and selection.cause is None:
        return distrusted
    if runtime.platform != "linux-x86_64":
        return Finding(
            "platform",
            REJECTED,
            runtime.platform,
            "linux-x86_64",
            f"there is no binary for {runtime.platform}",
            fixes.REFERENCE,
        )
    if not paths:
        if source_root() == Path(__file__).parents[1]:
            return _source_tree()
        return Finding(
            "package files",
            REJECTED,
            f"no shared object in {LIB_DIR} ({here})",
            "a glue and its kernels",
            "the installed package holds no binaries",
            fixes.reinstall(runtime),
            faults.PACKAGE_FILES,
        )
    cause = selection.cause
    if cause is not None:
        return cause
    kind = "glue" if selection.glue is None else "kernels"
    names = ", ".join(path.name for path in paths[:20])
    wanted = selection.forced or ("any glue" if kind == "glue" else "kernels-cpu.so")
    if selection.forced:
        fix = "unset LLTM_CONDA_VARIANT"
        why = f"the variant {selection.forced} asked for by LLTM_CONDA_VARIANT is not installed"
    else:
        fix = fixes.reinstall(runtime)
        why = f"the installed package holds no {kind} for this machine"
    return Finding("package files", REJECTED, names, wanted, why, fix, faults.PACKAGE_FILES)


def _source_tree() -> Finding:
    installed = installed_copies()
    if installed:
        return Finding(
            "package files",
            REJECTED,
            f"{Path(__file__).parent}, a source folder",
            f"the installed package {installed[0]}",
            "the source folder shadows the installed package",
            "start Python in another folder",
            faults.PACKAGE_FILES,
        )
    return Finding(
        "package files",
        REJECTED,
        f"{Path(__file__).parent}, a source folder without binaries",
        "binaries built for this torch",
        "lltm was not built here yet",
        "python -m pip install . --no-build-isolation   (or: python -m lltm_conda build)",
        faults.PACKAGE_FILES,
    )


def installed_copies() -> list[Path]:
    """Other folders called `lltm_conda` with binaries on the path of this Python."""
    found = []
    own = Path(__file__).parent
    for entry in sys.path:
        folder = Path(entry or ".") / "lltm_conda"
        try:
            if (folder / "lib").is_dir() and folder.resolve() != own.resolve():
                found.append(folder)
        except (OSError, RuntimeError):
            continue
    return found


def _unchecked(
    paths: list[Path], runtime: Runtime, forced: str | None
) -> tuple[BinaryRecord, BinaryRecord, BinaryRecord | None]:
    def unjudged(path: Path, _: Runtime) -> Verdict:
        binary = read_binary(path, light=True)
        return Verdict(binary, (Finding("not checked", OK, "LLTM_CONDA_SKIP_CHECK=1", ""),))

    selection = select(paths, runtime, unjudged, forced=forced)
    if selection.glue is None or selection.cpu is None:
        raise LLTMImportError(explain(selection, runtime, paths), selection)
    cuda = selection.cuda.binary if selection.cuda else None
    return selection.glue.binary, selection.cpu.binary, cuda


def _open(
    chosen: tuple[BinaryRecord, BinaryRecord, BinaryRecord | None],
    runtime: Runtime,
    selection: Selection | None,
) -> LoadedBinaries:
    import torch

    glue, cpu, cuda = chosen
    rejection = None
    if cuda is None and runtime.torch is not None and runtime.torch.cuda is not None:
        rejection = _no_cuda(selection, runtime)
    try:
        torch.ops.load_library(str(glue.path))
        library = ctypes.CDLL(str(glue.path))
    except OSError as error:
        raise _load_failure(glue, runtime, error, selection) from error
    _same_record(glue, library)
    _attach(library, cpu, runtime, selection)
    if cuda is not None:
        try:
            _attach(library, cuda, runtime, selection)
        except LLTMImportError as error:
            # The CPU works; whoever brings a CUDA tensor is told.
            rejection, cuda = error.finding, None
    name = f"{glue.name}-{'cpu' if cuda is None else cuda.name.replace('cuda', 'cu')}"
    return LoadedBinaries(str(VariantName.parse(name)), glue, cpu, cuda, rejection, selection)


def _attach(
    glue: ctypes.CDLL, kernels: BinaryRecord, runtime: Runtime, selection: Selection | None
) -> None:
    try:
        library = ctypes.CDLL(str(kernels.path))
    except OSError as error:
        raise _load_failure(kernels, runtime, error, selection) from error
    _same_record(kernels, library)
    library.lltm_kernel_table.restype = ctypes.c_void_p
    glue.lltm_attach_kernels.argtypes = [ctypes.c_void_p]
    glue.lltm_attach_kernels.restype = ctypes.c_char_p
    refusal = glue.lltm_attach_kernels(library.lltm_kernel_table())
    if refusal is not None:
        raise LLTMImportError(
            Finding(
                "kernel table",
                REJECTED,
                refusal.decode("utf-8", "replace"),
                "kernels of the same build as the glue",
                f"the glue refused {kernels.path.name}",
                fixes.reinstall(runtime),
                faults.PACKAGE_FILES,
            ),
            selection,
        )


def _same_record(binary: BinaryRecord, library: ctypes.CDLL) -> None:
    """What the file says and what the loaded object says must be one text."""
    library.lltm_build_record.restype = ctypes.c_char_p
    reported = (library.lltm_build_record() or b"").decode("utf-8", "replace").strip()
    written = binary.record.text.strip() if binary.record else ""
    if reported != written:
        raise LLTMImportError(
            Finding(
                "build record",
                REJECTED,
                reported or "nothing",
                written or "a build record in the file",
                f"{binary.path.name} changed on disk after another copy of it was loaded",
                "restart Python",
                faults.PACKAGE_FILES,
            )
        )


def _load_failure(
    binary: BinaryRecord, runtime: Runtime, error: OSError, selection: Selection | None
) -> LLTMImportError:
    # torch >= 2.9 hides the loader's text behind "Could not load this library".
    text = str(error.__cause__ or error)
    known = faults.classify(text)
    return LLTMImportError(
        Finding(
            "loading",
            REJECTED,
            text,
            f"{binary.path.name} accepted by the dynamic linker",
            f"{binary.path.name} was accepted but could not be loaded"
            + (f" ({known.title})" if known else ""),
            fixes.fit_torch(runtime),
            known.number if known else None,
        ),
        selection,
    )


def _no_cuda(selection: Selection | None, runtime: Runtime) -> Finding:
    if selection is not None:
        for verdict in selection.considered:
            name = verdict.binary.path.name
            if name.startswith("kernels-cuda") and verdict.cause is not None:
                return verdict.cause
    forced = selection.forced if selection else None
    return Finding(
        "CUDA kernels",
        REJECTED,
        f"variant {forced} forced by LLTM_CONDA_VARIANT" if forced else "CPU kernels only",
        "kernels for CUDA tensors",
        "the installed package holds no CUDA kernels that fit",
        "unset LLTM_CONDA_VARIANT"
        if forced
        else f"{fixes.fit_torch(runtime)}   (or: {fixes.BUILD})",
        faults.CPU_ONLY_BINARY,
    )


def check_cuda(device: torch.device | int | None = None) -> None:
    """Judge driver and GPU before the first call on a CUDA device; a set lookup afterwards.

    Args:
        device: a CUDA device (or its index); None for the current one.

    Raises:
        LLTMCudaError: there are no CUDA kernels, or they cannot run on this GPU; the text says why.
    """
    index = device if isinstance(device, int) else getattr(device, "index", None)
    if index in _checked:
        return
    import torch

    if index is None:
        index = torch.cuda.current_device()
        if index in _checked:
            return
    binaries = load()
    if binaries.cuda is None:
        raise LLTMCudaError(
            binaries.cuda_rejection
            or Finding(
                "CUDA kernels",
                REJECTED,
                f"torch {torch.__version__}",
                "a CUDA build of torch",
                "torch is a CPU-only build",
                fixes.cuda_torch(host_probe.environment(), None),
                faults.CPU_TORCH_SWAPPED_IN,
            )
        )
    if os.environ.get("LLTM_CONDA_SKIP_CHECK") != "1":
        from .compat.driver_probe import probe_driver

        facts = Runtime(
            system=host_probe.system(),
            machine=host_probe.machine(),
            python=tuple(sys.version_info[:3]),
            torch=torch_probe.from_module(torch),
            gpu_probed=True,
            driver=probe_driver(),
            devices=(
                Device(
                    index,
                    torch.cuda.get_device_name(index),
                    torch.cuda.get_device_capability(index),
                ),
            ),
            libc=host_probe.libc(),
            package_version=__version__,
        )
        for finding in judge(binaries.cuda, facts).findings:
            if finding.status == REJECTED:
                raise LLTMCudaError(finding)
    _checked.add(index)
