"""Judge the binaries, load the ones that fit, and say why when none does.

Nothing is loaded that was not judged in this process. Facts come from the torch that is already
imported; CUDA is not touched before the first CUDA tensor (`check_cuda`). Files are judged in order
of preference until one is accepted, and `explain` is imported only where nothing fits: both keep an
import of the package cheap.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compat import faults, fixes
from .compat.binary import read_binary
from .compat.cache import find_binaries
from .compat.judgement import judge, judge_file
from .compat.records import (
    OK,
    REJECTED,
    BinaryRecord,
    Device,
    Finding,
    NameFormatError,
    Runtime,
    Verdict,
)
from .compat.runtime_probe import environment, mapped_files, runtime_of
from .compat.selection import Selection, select
from .compat.text import printable
from .compat.torch_probe import TorchNotFoundError, from_module
from .project import Project, Record

if TYPE_CHECKING:
    import torch

# The words that ld.so(8) replaces in a path before it opens the file.
_LINKER_WORD = r"\$(\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))"


def describe(finding: Finding, project: Project, subject: str = "cannot be loaded") -> str:
    """A finding as the text of an error: the cause, observed and needed, the command."""
    lines = [
        f"{project.distribution} {subject}: {finding.why or finding.dimension}",
        *(f"  {line}" for line in finding.lines),
        f"  every binary and why: {project.command}",
    ]
    return "\n".join(map(printable, lines))


class BinariesImportError(ImportError):
    """No binary of the package can be used here; each client has a subclass of its own.

    `finding` is the one cause; `selection` holds every verdict that led to it, or is None.
    """

    def __init__(
        self, finding: Finding, project: Project, selection: Selection | None = None
    ) -> None:
        super().__init__(describe(finding, project), name=project.package)
        self.finding = finding
        self.selection = selection


class BinariesCudaError(RuntimeError):
    """The op cannot compute on CUDA tensors here; `finding` holds the one cause."""

    def __init__(self, finding: Finding, project: Project) -> None:
        super().__init__(describe(finding, project, "cannot compute on this CUDA device"))
        self.finding = finding


class LoadedBinaries(Record):
    """The binaries that were loaded into this process.

    Attributes:
        glue, cpu, cuda: their records; None if not loaded (`cuda`: the project has no CUDA kernels,
            torch is not a CUDA build, or none was accepted).
        cuda_rejection: why there are no CUDA kernels although torch is a CUDA build and the project
            has some; else None.
    """

    glue: BinaryRecord
    cpu: BinaryRecord | None
    cuda: BinaryRecord | None
    cuda_rejection: Finding | None

    @property
    def variant(self) -> str:
        """Its name, e.g. `stable210-cu13`."""
        device = "cpu" if self.cuda is None else self.cuda.name.replace("cuda", "cu")
        return f"{self.glue.name}-{device}"

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """The files of glue, CPU kernels and CUDA kernels."""
        return tuple(file.path if file else None for file in (self.glue, self.cpu, self.cuda))

    def __repr__(self) -> str:
        return f"LoadedBinaries({self.variant!r}, {str(self.glue.path.parent)!r})"


class Loader:
    """Loads the binaries of one project, once per process.

    If they cannot be used it raises `import_error` or `cuda_error`.
    """

    def __init__(
        self,
        project: Project,
        import_error: type[BinariesImportError] = BinariesImportError,
        cuda_error: type[BinariesCudaError] = BinariesCudaError,
    ) -> None:
        self.project = project
        self._import_error = import_error
        self._cuda_error = cuda_error
        self.lock = threading.RLock()
        #: The arguments with_cuda and build_directory of the `jit.load` that compiled the binaries.
        self.compiled_with: tuple[bool | None, Path | None] | None = None
        self._loaded: LoadedBinaries | None = None
        self._checked: set[int] = set()

    def loaded(self) -> LoadedBinaries | None:
        return self._loaded

    def at_import(self) -> bool:
        """Load for an import of the package; says whether its binaries are loaded.

        With `$PREFIX_LOAD=0`, and for `python -m PACKAGE`, it loads nothing: the checker must work
        where no binary does.
        """
        if not (self._loaded or self._is_the_program() or self._setting("LOAD") == "0"):
            self.load()
        return self._loaded is not None

    def _is_the_program(self) -> bool:
        """Whether Python was started as `python -m PACKAGE`."""
        # While runpy imports the package, argv is "-m" and the words after the module's name.
        if sys.argv[:1] != ["-m"]:
            return False
        module = sys.orig_argv[-len(sys.argv)]  # "PACKAGE", or joined to options: "-mPACKAGE"
        name = self.project.package
        return module == name or (module.startswith("-") and module.endswith(f"m{name}"))

    def absent(self, name: str, names: Sequence[str]) -> Exception:
        """The exception for a missing attribute `name`; `names` are those that loading brings."""
        package, variable = self.project.package, self.project.variable("LOAD")
        if name not in names:
            return AttributeError(f"module {package!r} has no attribute {name!r}")
        return ImportError(
            f"{package}.{name} is not there, because {variable}=0 lets the package be imported "
            f"without its binaries; unset {variable} and start Python again, or call "
            f"{package}.jit.load()",
            name=package,
        )

    def load(self, built: Sequence[Path] | None = None) -> LoadedBinaries:
        """Judge binaries and load the ones that fit; once per process, from any thread.

        `built` are the files to choose from; by default those of the package, then those of the
        build cache. Every later call returns the same object.

        Raises:
            BinariesImportError: nothing fits. Its first line is the cause, the command follows.
        """
        with self.lock:
            if self._loaded is None:
                self._loaded = self._judge_and_open(built)
            return self._loaded

    def _judge_and_open(self, built: Sequence[Path] | None) -> LoadedBinaries:
        runtime = self.import_runtime()
        if built is None:
            paths, distrusted = find_binaries(self.project, runtime.torch)
        else:
            paths, distrusted = list(built), None
        selection = self.choose(paths, runtime, self._setting("VARIANT"))
        if selection.glue is None or not selection.complete:
            from .compat.explain import explain  # only a failure needs it

            cause = explain(selection, runtime, paths, distrusted)
            raise self._import_error(cause, self.project, selection)
        glue = selection.glue.binary
        cpu, cuda = (x.binary if x else None for x in (selection.cpu, selection.cuda))
        rejection = None
        on_cuda = runtime.torch is not None and runtime.torch.cuda is not None
        if cuda is None and on_cuda and "cuda" in self.project.kernels:
            from .compat.explain import no_cuda

            rejection = no_cuda(selection, runtime)
        library = self._open(glue, runtime, selection)
        if cpu is not None:
            self._attach(library, cpu, runtime, selection)
        if cuda is not None:
            try:
                self._attach(library, cuda, runtime, selection)
            except BinariesImportError as error:  # the CPU works; `check_cuda` tells the rest
                rejection, cuda = error.finding, None
        return LoadedBinaries(glue, cpu, cuda, rejection)

    def choose(self, paths: Sequence[Path], runtime: Runtime, forced: str | None) -> Selection:
        """Judge in order of preference until a glue and its kernels are accepted.

        `forced` is `$PREFIX_VARIANT`. With `$PREFIX_SKIP_CHECK=1` the first of each is taken
        unjudged.
        """
        unchecked = self._setting("SKIP_CHECK") == "1"

        def judge_one(path: Path, facts: Runtime) -> Verdict:
            if unchecked:
                taken = Finding("not checked", OK, f"{self.project.variable('SKIP_CHECK')}=1", "")
                return Verdict(read_binary(path, light=True), (taken,))
            verdict = judge_file(path, facts, light=True)
            cause = verdict.cause.dimension if verdict.cause else ""
            if cause == "CUDA build of torch" and not facts.gpu_probed:
                # Kernels newer than torch's CUDA need the driver's version already here.
                from .compat.driver_probe import probe_driver

                facts = facts._replace(gpu_probed=True, driver=probe_driver())
                verdict = judge_file(verdict.binary, facts, light=True)
            return verdict

        try:
            return select(paths, runtime, judge_one, forced=forced)
        except NameFormatError as error:
            name, needed = self.project.variable("VARIANT"), "the name of a variant, or nothing"
            fix = f"unset {name}"
            raise self._refused(None, name, repr(forced), needed, str(error), fix) from None

    def _refused(
        self, selection: Selection | None, dimension: str, observed: str | bytes, *said: Any
    ) -> BinariesImportError:
        """The error for a rejection; `said` are its `needed`, `why`, `fix` and `fault`."""
        finding = Finding(dimension, REJECTED, printable(observed), *said)
        return self._import_error(finding, self.project, selection)

    def _setting(self, name: str) -> str | None:
        return os.environ.get(self.project.variable(name)) or None

    def import_runtime(self) -> Runtime:
        """The facts for an import: of this process and its torch, nothing about the GPU."""
        try:
            import torch
        except Exception as error:  # a broken torch raises anything from OSError to AttributeError
            missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
            here, needed = environment(self.project), "a torch that can be imported"
            why = "torch is not installed" if missing else "import torch fails"
            again = fixes.reinstall_torch(here, None)
            fix = fixes.install_torch(here, self.project) if missing else again
            observed, fault = f"{type(error).__name__}: {error}", faults.TORCH_NOT_LOADED
            raise self._refused(None, "torch", observed, needed, why, fix, fault) from error
        try:
            install = from_module(torch)
        except TorchNotFoundError as error:
            place, why = str(getattr(torch, "__file__", None)), printable(str(error))
            fix, fault = "rename the file or folder that shadows it", faults.TORCH_NOT_LOADED
            needed = "the torch package of PyTorch"
            raise self._refused(None, "torch", place, needed, why, fix, fault) from error
        return runtime_of(install, self.project, self.registered_by(torch))

    def registered_by(self, torch: Any) -> str | None:
        """Which file registered the operators before us; None if nobody did."""
        try:
            project = self.project
            if not torch._C._dispatch_has_kernel(f"{project.namespace}::{project.operator}"):
                return None
        except (AttributeError, RuntimeError):
            return None
        for path in mapped_files("glue-"):
            record = read_binary(path, light=True).record
            if record is not None and record.package == project.distribution:
                return str(path)
        return "another library of this process"

    def _open(self, binary: BinaryRecord, runtime: Runtime, selection: Selection) -> ctypes.CDLL:
        """Load an accepted file, and compare the record that the loaded object reports with the
        file's: another object of the same name may be loaded already."""
        path, fault = str(binary.path), faults.PACKAGE_FILES
        if "$" in path and (word := re.search(_LINKER_WORD, path)):
            why = f"the path of {binary.file} holds {word[0]}, which the dynamic linker replaces"
            fix = "rename or move that folder, and start Python again"
            needed = f"a path without {word[0]}"
            raise self._refused(selection, "path", path, needed, why, fix, fault)
        try:
            if binary.kind == "glue":
                import torch

                torch.ops.load_library(path)
            library = ctypes.CDLL(path)
        except OSError as error:
            # torch >= 2.9 hides the linker's text behind "Could not load this library".
            text = printable(str(error.__cause__ or error))
            known, needed = faults.classify(text), f"{binary.file} accepted by the dynamic linker"
            why = f"{binary.file} was accepted but could not be loaded"
            why += f" ({known.title})" if known else ""
            said = needed, why, fixes.fit_torch(runtime), known
            raise self._refused(selection, "loading", text, *said) from error
        reported = ""
        build_record = getattr(library, self.project.symbol("build_record"), None)
        if build_record is not None:
            build_record.restype = ctypes.c_char_p
            reported = (build_record() or b"").decode("utf-8", "replace")
        written = binary.record.text if binary.record else ""
        if reported != written:
            why = f"{binary.file} on disk is not the one that is loaded in this process"
            said = written or "a build record in the file", why, "restart Python", fault
            raise self._refused(selection, "build record", reported or "nothing", *said)
        return library

    def _attach(
        self, glue: ctypes.CDLL, kernels: BinaryRecord, runtime: Runtime, selection: Selection
    ) -> None:
        """Open kernels and hand their table to the glue, which may refuse it."""
        library = self._open(kernels, runtime, selection)
        table = getattr(library, self.project.symbol("kernel_table"))
        attach = getattr(glue, self.project.symbol("attach_kernels"))
        table.restype = ctypes.c_void_p
        attach.argtypes = [ctypes.c_void_p]
        attach.restype = ctypes.c_char_p
        refusal = attach(table())
        if refusal is not None:
            why, fix = f"the glue refused {kernels.file}", fixes.reinstall(runtime)
            said = "kernels of the same build as the glue", why, fix, faults.PACKAGE_FILES
            raise self._refused(selection, "kernel table", refusal, *said)

    def check_cuda(self, device: torch.device | int | None = None) -> None:
        """Judge driver and GPU before the first call on a CUDA device; later calls cost a lookup.

        `device` None means the current device.

        Raises:
            BinariesCudaError: there are no CUDA kernels, or they cannot run on this GPU; the text
                says why.
        """
        index = device if isinstance(device, int) else getattr(device, "index", None)
        if index in self._checked:
            return
        import torch

        if not torch.cuda.is_available():
            return  # a fake tensor: there is no GPU to compute on
        if index is None:
            index = torch.cuda.current_device()
        # This loader has loaded nothing if another library registered the op.
        finding = None if self._loaded is None else self._cuda_finding(index, self._loaded)
        if finding is not None:
            raise self._cuda_error(finding, self.project)
        self._checked.add(index)

    def _cuda_finding(self, index: int, binaries: LoadedBinaries) -> Finding | None:
        """Why the CUDA kernels cannot run on this device, or None."""
        import torch

        from .compat.driver_probe import probe_driver

        if "cuda" not in self.project.kernels:
            return None  # the project's operators call only torch
        if binaries.cuda is None:
            # Without a rejection, torch was a CPU build when the package was loaded.
            fix = fixes.cuda_torch(environment(self.project), None)
            observed, needed = f"torch {torch.__version__}", "a CUDA build of torch"
            said = observed, needed, "torch is a CPU-only build", fix, faults.CPU_TORCH_SWAPPED_IN
            return binaries.cuda_rejection or Finding("CUDA kernels", REJECTED, *said)
        if self._setting("SKIP_CHECK") == "1":
            return None
        capability = torch.cuda.get_device_capability(index)
        device = Device(index, torch.cuda.get_device_name(index), capability)
        facts = self.import_runtime()._replace(
            gpu_probed=True, driver=probe_driver(), devices=(device,), registered_by=None
        )
        return judge(binaries.cuda, facts).rejection
