"""Judge the binaries, load the ones that fit, and say why when none does.

Nothing is loaded that was not judged in this process. Facts come from the torch that is already
imported; CUDA is not touched before the first CUDA tensor (`check_cuda`). Files are judged in order
of preference until one is accepted, and modules that only explain a failure are imported only
there: both keep `import lltm_conda` cheap.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__

if TYPE_CHECKING:
    import torch

    from .compat.records import BinaryRecord, Finding, Runtime, Verdict
    from .compat.selection import Selection

PACKAGE = Path(__file__).parents[1]


def describe(finding: Finding, subject: str = "lltm cannot be loaded") -> str:
    """A finding as the text of an error: the cause, observed and needed, the command."""
    from .compat.text import printable

    lines = [
        f"{subject}: {finding.why or finding.dimension}",
        f"  observed: {finding.observed}",
        f"  needed:   {finding.needed}",
        *([f"  to mend:  {finding.fix}"] if finding.fix else []),
        "  every binary and why: python -m lltm_conda",
    ]
    return "\n".join(map(printable, lines))


class LLTMImportError(ImportError):
    """No binary of the package can be used here.

    Attributes:
        finding: the one cause.
        selection: every verdict that led to it, or None when nothing was judged.
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


class LoadedBinaries:
    """What was loaded into this process.

    Attributes:
        variant: its name, e.g. `stable210-cu13`.
        paths: the files: glue, CPU kernels, CUDA kernels (None when torch is no CUDA build, or
            none was accepted).
        glue: the record of the glue.
        cpu: the record of the CPU kernels.
        cuda: the record of the CUDA kernels, or None.
        cuda_rejection: why there are no CUDA kernels although torch is a CUDA build; else None.
    """

    def __init__(
        self,
        glue: BinaryRecord,
        cpu: BinaryRecord,
        cuda: BinaryRecord | None,
        cuda_rejection: Finding | None,
    ) -> None:
        self.variant = f"{glue.name}-{'cpu' if cuda is None else cuda.name.replace('cuda', 'cu')}"
        self.paths = (glue.path, cpu.path, None if cuda is None else cuda.path)
        self.glue = glue
        self.cpu = cpu
        self.cuda = cuda
        self.cuda_rejection = cuda_rejection

    def __repr__(self) -> str:
        return f"LoadedBinaries({self.variant!r}, {str(self.paths[0].parent)!r})"


_lock = threading.Lock()
_loaded: LoadedBinaries | None = None
_checked: set[int] = set()


def loaded() -> LoadedBinaries | None:
    """What `load` loaded, or None."""
    return _loaded


def load(built: Sequence[Path] | None = None) -> LoadedBinaries:
    """Judge binaries and load the ones that fit; once per process, from any thread.

    Args:
        built: the files to choose from; by default those of the package, then those of the build
            cache.

    Returns:
        What was loaded; the same object on every later call.

    Raises:
        LLTMImportError: nothing fits. Its first line is the cause, the command follows.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _judge_and_open(built)
        return _loaded


def _judge_and_open(built: Sequence[Path] | None) -> LoadedBinaries:
    from .compat.package_files import find_binaries

    runtime = import_runtime()
    if built is None:
        paths, distrusted = find_binaries(PACKAGE, runtime.torch, __version__)
    else:
        paths, distrusted = list(built), None
    selection = choose(paths, runtime, os.environ.get("LLTM_CONDA_VARIANT") or None)
    if selection.glue is None or selection.cpu is None:
        from .compat.explain import explain

        raise LLTMImportError(explain(selection, runtime, paths, PACKAGE, distrusted), selection)
    glue, cpu = selection.glue.binary, selection.cpu.binary
    cuda = selection.cuda.binary if selection.cuda else None
    rejection = None
    if cuda is None and runtime.torch is not None and runtime.torch.cuda is not None:
        from .compat.explain import no_cuda

        rejection = no_cuda(selection, runtime)
    library = _open(glue, runtime, selection)
    _attach(library, cpu, runtime, selection)
    if cuda is not None:
        try:
            _attach(library, cuda, runtime, selection)
        except LLTMImportError as error:  # the CPU works; `check_cuda` tells the rest
            rejection, cuda = error.finding, None
    return LoadedBinaries(glue, cpu, cuda, rejection)


def choose(paths: Sequence[Path], runtime: Runtime, forced: str | None) -> Selection:
    """Judge in order of preference until a glue and its kernels are accepted.

    With LLTM_CONDA_SKIP_CHECK=1 in the environment the first of each is taken unjudged.

    Raises:
        LLTMImportError: when `forced` (LLTM_CONDA_VARIANT) is no name of a variant.
    """
    from .compat.judgement import judge_file
    from .compat.records import OK, Finding, NameFormatError, Verdict
    from .compat.selection import select

    unchecked = os.environ.get("LLTM_CONDA_SKIP_CHECK") == "1"

    def judge_one(path: Path, facts: Runtime) -> Verdict:
        if unchecked:
            from .compat.binary import read_binary

            taken = Finding("not checked", OK, "LLTM_CONDA_SKIP_CHECK=1", "")
            return Verdict(read_binary(path, light=True), (taken,))
        verdict = judge_file(path, facts, light=True)
        cause = verdict.cause
        if cause is not None and cause.dimension == "CUDA build of torch" and not facts.gpu_probed:
            # Only kernels newer than torch's CUDA depend on the driver this early.
            from .compat.driver_probe import probe_driver

            facts = facts._replace(gpu_probed=True, driver=probe_driver())
            verdict = judge_file(verdict.binary, facts, light=True)
        return verdict

    try:
        return select(paths, runtime, judge_one, forced=forced)
    except NameFormatError as error:
        from .compat.explain import refused_forced_name

        raise LLTMImportError(refused_forced_name(str(forced), error)) from None


def import_runtime() -> Runtime:
    """The facts for an import: of this process and the torch it has, nothing about the GPU.

    Raises:
        LLTMImportError: torch is missing, cannot be imported, or is not PyTorch; the original error
            is its cause.
    """
    from .compat.runtime_probe import runtime_of
    from .compat.torch_probe import TorchNotFoundError, from_module

    try:
        import torch
    except Exception as error:  # a broken torch raises anything from OSError to AttributeError
        from .compat.explain import no_torch

        raise LLTMImportError(no_torch(error, PACKAGE)) from error
    try:
        install = from_module(torch)
    except TorchNotFoundError as error:
        from .compat.explain import not_pytorch

        raise LLTMImportError(not_pytorch(torch, error)) from error
    return runtime_of(install, PACKAGE, __version__, registered_by(torch))


def registered_by(torch: Any) -> str | None:
    """Which file registered `torch.ops.lltm` before us; None if nobody did."""
    try:
        if not torch._C._dispatch_has_kernel("lltm::forward"):
            return None
    except (AttributeError, RuntimeError):
        return None
    from .compat.host_probe import mapped_file

    path = mapped_file("glue-")
    return "another library of this process" if path is None else str(path)


# Opening what was accepted.


def _open(binary: BinaryRecord, runtime: Runtime, selection: Selection) -> ctypes.CDLL:
    """Load an accepted file, and hold what the loaded object reports against what was judged.

    Raises:
        LLTMImportError: the dynamic linker refuses it, or another object is or would be loaded.
    """
    if "$" in str(binary.path):
        from .compat.explain import unusable_path

        finding = unusable_path(binary.path)
        if finding is not None:
            raise LLTMImportError(finding, selection)
    try:
        if binary.kind == "glue":
            import torch

            torch.ops.load_library(str(binary.path))
        library = ctypes.CDLL(str(binary.path))
    except OSError as error:
        from .compat.explain import load_failure

        raise LLTMImportError(load_failure(binary, runtime, error), selection) from error
    reported = ""
    if hasattr(library, "lltm_build_record"):
        library.lltm_build_record.restype = ctypes.c_char_p
        reported = (library.lltm_build_record() or b"").decode("utf-8", "replace")
    if reported != (binary.record.text if binary.record else ""):
        from .compat.explain import other_object

        raise LLTMImportError(other_object(binary, reported), selection)
    return library


def _attach(
    glue: ctypes.CDLL, kernels: BinaryRecord, runtime: Runtime, selection: Selection
) -> None:
    """Open kernels and hand their table to the glue.

    Raises:
        LLTMImportError: they cannot be opened, or the glue refuses the table.
    """
    library = _open(kernels, runtime, selection)
    library.lltm_kernel_table.restype = ctypes.c_void_p
    glue.lltm_attach_kernels.argtypes = [ctypes.c_void_p]
    glue.lltm_attach_kernels.restype = ctypes.c_char_p
    refusal = glue.lltm_attach_kernels(library.lltm_kernel_table())
    if refusal is not None:
        from .compat.explain import refused_kernels

        raise LLTMImportError(refused_kernels(kernels, refusal, runtime), selection)


# The first call on a CUDA device.


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

    if not torch.cuda.is_available():
        return  # a fake tensor: there is no GPU to compute on
    if index is None:
        index = torch.cuda.current_device()
    # Nothing was loaded through here when another program registered the op.
    finding = None if _loaded is None else _cuda_finding(index, _loaded)
    if finding is not None:
        raise LLTMCudaError(finding)
    _checked.add(index)


def _cuda_finding(index: int, binaries: LoadedBinaries) -> Finding | None:
    """Why the CUDA kernels cannot run on this device, or None."""
    import torch

    from .compat.driver_probe import probe_driver
    from .compat.explain import no_cuda_build
    from .compat.judgement import judge
    from .compat.records import REJECTED, Device

    if binaries.cuda is None:
        return binaries.cuda_rejection or no_cuda_build(torch.__version__, PACKAGE)
    if os.environ.get("LLTM_CONDA_SKIP_CHECK") == "1":
        return None
    capability = torch.cuda.get_device_capability(index)
    device = Device(index, torch.cuda.get_device_name(index), capability)
    facts = import_runtime()._replace(
        gpu_probed=True, driver=probe_driver(), devices=(device,), registered_by=None
    )
    cause = judge(binaries.cuda, facts).cause
    return cause if cause is not None and cause.status == REJECTED else None
