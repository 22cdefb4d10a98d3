"""Judge the package's binaries, load the one that fits, and say why when none does.

Nothing is `dlopen`ed before it was accepted. Facts come from the torch that is already imported;
CUDA is not touched before the first CUDA tensor (`check_cuda`). What was accepted before, with
nothing changed since, is taken without being judged again (`compat.verdict_cache`); the modules
that judge are imported only where they are needed, which keeps `import lltm_conda` cheap.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    import torch

    from .compat.records import BinaryRecord, Finding, Runtime, Verdict
    from .compat.selection import Selection

PACKAGE = Path(__file__).parent
LIB_DIR = PACKAGE / "lib"
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


class LoadedBinaries:
    """What was loaded into this process.

    Attributes:
        variant: its name, e.g. `stable210-cu13`.
        paths: the files: glue, CPU kernels, CUDA kernels (None when torch is no CUDA build, or
            none was accepted).
        remembered: whether the choice was remembered rather than judged in this process.
    """

    def __init__(self, variant: str, paths: tuple[Path, Path, Path | None], remembered: bool):
        self.variant = variant
        self.paths = paths
        self.remembered = remembered
        self._cuda_rejection: Finding | None = None

    def __repr__(self) -> str:
        return f"LoadedBinaries({self.variant!r}, {str(self.paths[0].parent)!r})"

    @cached_property
    def glue(self) -> BinaryRecord:
        """The glue's record."""
        return _read(self.paths[0])

    @cached_property
    def cpu(self) -> BinaryRecord:
        """The CPU kernels' record."""
        return _read(self.paths[1])

    @cached_property
    def cuda(self) -> BinaryRecord | None:
        """The CUDA kernels' record, or None where none were loaded."""
        return None if self.paths[2] is None else _read(self.paths[2])

    @property
    def cuda_rejection(self) -> Finding | None:
        """Why there are no CUDA kernels although torch is a CUDA build; None where there are."""
        return self._cuda_rejection


def _read(path: Path) -> BinaryRecord:
    from .compat.binary import read_binary

    return read_binary(path, light=True)


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
    torch = _import_torch()
    unchecked = os.environ.get("LLTM_CONDA_SKIP_CHECK") == "1"
    key = None if unchecked or registered_by(torch) else _key(torch)
    if key is not None:
        from .compat.verdict_cache import recall

        choice = recall(key)
        if choice is not None:
            result = _open_remembered(choice)
            if result is not None:
                return result
    return _judge_and_open(key, unchecked)


# The ordinary import: nothing has changed since the last one.


# What the verdict follows from, besides the facts.
_DECIDE = ("judge_cuda.py", "judge_host.py", "judge_torch.py", "layouts.py", "selection.py")


def _key(torch: Any) -> str | None:
    """A key of everything the judge would look at, or None when there is no such key.

    The user's own builds are always judged: whose they are must be checked each time.
    """
    try:
        from .compat import cache, host_probe
        from .compat.verdict_cache import file_fact, key_of

        facts = torch.version
        root = Path(torch.__file__).parent
        flavour = torch._C._GLIBCXX_USE_CXX11_ABI
        if (cache.root() / cache.torch_key(torch.__version__, facts.cuda, int(flavour))).exists():
            return None
        files = [PACKAGE / "compat" / name for name in _DECIDE]
        files += [root / "lib" / name for name in ("libc10.so", "libtorch_cpu.so")]
        files += LIB_DIR.iterdir()
        standard = host_probe.loaded_file("libstdc++.so.6", "_ZSt9terminatev")
        if standard is not None:
            files.append(standard)
        return key_of(
            (
                __version__,
                *sorted(map(file_fact, files)),
                *(torch.__version__, flavour, facts.cuda, facts.hip, getattr(facts, "xpu", None)),
                *(sys.version, sys.platform, sys.prefix, host_probe.machine(), host_probe.libc()),
                os.environ.get("LLTM_CONDA_VARIANT"),
                os.environ.get("LD_LIBRARY_PATH"),
            )
        )
    except (OSError, AttributeError, TypeError):
        return None


def _open_remembered(choice: dict[str, Any]) -> LoadedBinaries | None:
    """Open a remembered choice; None when anything about it is not as it was."""
    try:
        names, texts = choice["files"], choice["records"]
        paths = [LIB_DIR / name if name else None for name in names]
        glue, cpu, cuda = paths
        if glue is None or cpu is None or not all(_plain_name(name) for name in names if name):
            return None
        result = LoadedBinaries(choice["variant"], (glue, cpu, cuda), remembered=True)
        rejection = choice["cuda_rejection"]
        if rejection is not None:
            from .compat.records import Finding

            result._cuda_rejection = Finding(**rejection)
    except (KeyError, TypeError, ValueError):
        return None
    try:
        library = _dlopen_glue(glue)
    except OSError:
        return None  # judge it again, which ends in the words for it
    for path, text in zip(paths, texts, strict=True):
        if path is None:
            continue
        try:
            opened = library if path is glue else ctypes.CDLL(str(path))
        except OSError as error:
            from .compat.explain import load_failure

            finding = load_failure(_read(path), import_runtime(), error)
            if path is cpu:
                raise LLTMImportError(finding) from error
            # The CPU works; whoever brings a CUDA tensor is told.
            result = LoadedBinaries(
                f"{choice['variant'].rpartition('-')[0]}-cpu", (glue, cpu, None), remembered=True
            )
            result._cuda_rejection = finding
            continue
        if _reported(opened) != text:
            raise LLTMImportError(_changed(path, _reported(opened), text))
        if path is not glue:
            _attach(library, opened, path)
    return result


def _plain_name(name: str) -> bool:
    return Path(name).name == name and name.endswith(".so")


# The first import, or one after a change: judge, then open.


def _judge_and_open(key: str | None, unchecked: bool) -> LoadedBinaries:
    from .compat.explain import explain, load_failure, no_cuda
    from .compat.package_files import find_binaries

    runtime = import_runtime()
    forced = os.environ.get("LLTM_CONDA_VARIANT") or None
    paths, distrusted = find_binaries(PACKAGE, runtime.torch, __version__)
    selection, driver_decided = choose(paths, runtime, forced, unchecked)
    if selection.glue is None or selection.cpu is None:
        raise LLTMImportError(explain(selection, runtime, paths, PACKAGE, distrusted), selection)
    glue, cpu = selection.glue.binary, selection.cpu.binary
    cuda = selection.cuda.binary if selection.cuda else None
    rejection = None
    if cuda is None and runtime.torch is not None and runtime.torch.cuda is not None:
        rejection = no_cuda(selection, runtime)
    try:
        library = _dlopen_glue(glue.path)
    except OSError as error:
        raise LLTMImportError(load_failure(glue, runtime, error), selection) from error
    _same_record(glue, library)
    for kernels in (cpu, cuda):
        if kernels is None:
            continue
        try:
            try:
                opened = ctypes.CDLL(str(kernels.path))
            except OSError as error:
                raise LLTMImportError(load_failure(kernels, runtime, error), selection) from error
            _same_record(kernels, opened)
            _attach(library, opened, kernels.path)
        except LLTMImportError as error:
            if kernels is cpu:
                raise
            # The CPU works; whoever brings a CUDA tensor is told.
            rejection, cuda, key = error.finding, None, None
    variant = f"{glue.name}-{'cpu' if cuda is None else cuda.name.replace('cuda', 'cu')}"
    result = LoadedBinaries(
        variant, (glue.path, cpu.path, cuda.path if cuda else None), remembered=False
    )
    result.__dict__.update(glue=glue, cpu=cpu, cuda=cuda)
    result._cuda_rejection = rejection
    if key is not None and not driver_decided:
        _remember(key, result)
    return result


def _remember(key: str, result: LoadedBinaries) -> None:
    from .compat.verdict_cache import remember

    records = (result.glue, result.cpu, result.cuda)
    if any(record is not None and record.path.parent != LIB_DIR for record in records):
        return
    remember(
        key,
        {
            "variant": result.variant,
            "files": [record and record.path.name for record in records],
            "records": [record and record.record and record.record.text for record in records],
            "cuda_rejection": result.cuda_rejection and result.cuda_rejection._asdict(),
        },
    )


def choose(
    paths: list[Path], runtime: Runtime, forced: str | None, unchecked: bool
) -> tuple[Selection, bool]:
    """Judge in order of preference until a glue and its kernels are accepted.

    Returns:
        The selection, and whether the driver had to be asked for it.

    Raises:
        LLTMImportError: when `forced` (LLTM_CONDA_VARIANT) is no name of a variant.
    """
    from .compat.explain import refused_forced_name
    from .compat.inspect import judge_file
    from .compat.records import OK, Finding, NameFormatError, Verdict
    from .compat.selection import select

    asked: list[Path] = []

    def judge_one(path: Path, facts: Runtime) -> Verdict:
        if unchecked:
            said = Finding("not checked", OK, "LLTM_CONDA_SKIP_CHECK=1", "")
            return Verdict(_read(path), (said,))
        verdict = judge_file(path, facts, light=True)
        cause = verdict.cause
        if cause is not None and cause.dimension == "CUDA build of torch" and not facts.gpu_probed:
            # Only kernels newer than torch's CUDA depend on the driver this early.
            from .compat.driver_probe import probe_driver

            asked.append(path)
            facts = facts._replace(gpu_probed=True, driver=probe_driver())
            verdict = judge_file(verdict.binary, facts, light=True)
        return verdict

    try:
        return select(paths, runtime, judge_one, forced=forced), bool(asked)
    except NameFormatError as error:
        raise LLTMImportError(refused_forced_name(str(forced), error)) from None


def _import_torch() -> Any:
    """The torch of this process.

    Raises:
        LLTMImportError: it is missing or cannot be imported; the original error is the cause.
    """
    try:
        import torch
    except Exception as error:  # a broken torch raises anything from OSError to AttributeError
        from .compat.explain import no_torch

        raise LLTMImportError(no_torch(error, PACKAGE)) from error
    return torch


def import_runtime() -> Runtime:
    """The facts for an import: of this process and the torch it has, nothing about the GPU.

    Raises:
        LLTMImportError: torch is missing, cannot be imported, or is not PyTorch.
    """
    from .compat.explain import not_pytorch
    from .compat.runtime_probe import runtime_of
    from .compat.torch_probe import TorchNotFoundError, from_module

    torch = _import_torch()
    try:
        install = from_module(torch)
    except TorchNotFoundError as error:
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


def _dlopen_glue(path: Path) -> ctypes.CDLL:
    import torch

    torch.ops.load_library(str(path))
    return ctypes.CDLL(str(path))


def _attach(glue: ctypes.CDLL, kernels: ctypes.CDLL, path: Path) -> None:
    kernels.lltm_kernel_table.restype = ctypes.c_void_p
    glue.lltm_attach_kernels.argtypes = [ctypes.c_void_p]
    glue.lltm_attach_kernels.restype = ctypes.c_char_p
    refusal = glue.lltm_attach_kernels(kernels.lltm_kernel_table())
    if refusal is not None:
        from .compat import faults
        from .compat.records import REJECTED, Finding

        raise LLTMImportError(
            Finding(
                "kernel table",
                REJECTED,
                refusal.decode("utf-8", "replace"),
                "kernels of the same build as the glue",
                f"the glue refused {path.name}",
                f'python -m pip install --force-reinstall --no-deps "lltm=={__version__}"',
                faults.PACKAGE_FILES,
            )
        )


def _reported(library: ctypes.CDLL) -> str:
    library.lltm_build_record.restype = ctypes.c_char_p
    return (library.lltm_build_record() or b"").decode("utf-8", "replace")


def _same_record(binary: BinaryRecord, library: ctypes.CDLL) -> None:
    """What the file says and what the loaded object says must be one text."""
    written = binary.record.text if binary.record else ""
    reported = _reported(library)
    if reported != written:
        raise LLTMImportError(_changed(binary.path, reported, written))


def _changed(path: Path, reported: str, written: str) -> Finding:
    from .compat import faults
    from .compat.records import REJECTED, Finding

    return Finding(
        "build record",
        REJECTED,
        reported or "nothing",
        written or "a build record in the file",
        f"{path.name} on disk is not the one that is loaded in this process",
        "restart Python",
        faults.PACKAGE_FILES,
    )


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
    # Nothing was loaded through here when the op was compiled just in time.
    finding = None if _loaded is None else _cuda_finding(index, _loaded)
    if finding is not None:
        raise LLTMCudaError(finding)
    _checked.add(index)


def _cuda_finding(index: int, binaries: LoadedBinaries) -> Finding | None:
    """What speaks against CUDA kernels on this device, or None."""
    import torch

    from .compat import faults, fixes, host_probe
    from .compat.driver_probe import probe_driver
    from .compat.judgement import judge
    from .compat.records import REJECTED, Device, Finding

    if binaries.cuda is None:
        return binaries.cuda_rejection or Finding(
            "CUDA kernels",
            REJECTED,
            f"torch {torch.__version__}",
            "a CUDA build of torch",
            "torch is a CPU-only build",
            fixes.cuda_torch(host_probe.environment(PACKAGE), None),
            faults.CPU_TORCH_SWAPPED_IN,
        )
    if os.environ.get("LLTM_CONDA_SKIP_CHECK") == "1":
        return None
    capability = torch.cuda.get_device_capability(index)
    device = Device(index, torch.cuda.get_device_name(index), capability)
    facts = import_runtime()._replace(
        gpu_probed=True, driver=probe_driver(), devices=(device,), registered_by=None
    )
    for finding in judge(binaries.cuda, facts).findings:
        if finding.status == REJECTED:
            return finding
    return None
