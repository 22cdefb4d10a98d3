"""Loads a glue and kernels that fit, or raises an error that names the cause.

To judge a binary is to tell from its file whether it works here. The loader loads only files that
it has accepted in this process; it judges them unless `$PREFIX_SKIP_CHECK` is 1. The loader imports
torch to learn torch's facts, and judges a GPU only before the first computation on that GPU
(`check_cuda`). To keep the package's import quick, it judges few files (see `selection`), and
imports `explain` only if it has accepted no file of a kind that torch could use.
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

from ..doctor import faults, fixes
from ..doctor.binary import read_binary
from ..doctor.cache import find_binaries
from ..doctor.judgement import judge, judge_file
from ..doctor.project import Project, Record
from ..doctor.records import (
    OK,
    REJECTED,
    BinaryRecord,
    Device,
    Finding,
    NameFormatError,
    Runtime,
    Verdict,
)
from ..doctor.runtime_probe import environment, mapped_files, runtime_of
from ..doctor.selection import Selection, select
from ..doctor.text import printable
from ..doctor.torch_probe import TorchNotFoundError, from_module

if TYPE_CHECKING:
    import torch

# The tokens in a path that ld.so(8) replaces before opening the file.
_LINKER_TOKEN = r"\$(\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))"


def describe(finding: Finding, project: Project, subject: str = "cannot be loaded") -> str:
    """The text of an error: cause, observed and needed values, fix, and the checker's command."""
    lines = [
        f"{project.distribution} {subject}: {finding.why or finding.dimension}",
        *(f"  {line}" for line in finding.lines),
        f"  the verdicts on all binaries: {project.command}",
    ]
    return "\n".join(map(printable, lines))


class BinariesImportError(ImportError):
    """The binaries of the package cannot be loaded here. `finding` is the cause. `selection` holds
    the verdicts that led to it, or is None if the loader stopped before judging."""

    def __init__(
        self, finding: Finding, project: Project, selection: Selection | None = None
    ) -> None:
        super().__init__(describe(finding, project), name=project.package)
        self.finding = finding
        self.selection = selection


class BinariesCudaError(RuntimeError):
    """The op cannot compute on CUDA tensors here; `finding` is the cause."""

    def __init__(self, finding: Finding, project: Project) -> None:
        super().__init__(describe(finding, project, "cannot compute on this CUDA device"))
        self.finding = finding


class LoadedBinaries(Record):
    """The binaries that were loaded into this process."""

    glue: BinaryRecord
    cpu: BinaryRecord | None  #: the CPU kernels; None if the project has none
    cuda: BinaryRecord | None  #: the CUDA kernels; None if none were loaded
    #: Why no CUDA kernels were loaded although torch is a CUDA build and the project has CUDA
    #: kernels; else None.
    cuda_rejection: Finding | None

    @property
    def variant(self) -> str:
        """The variant's name, e.g. `stable210-cu13`."""
        device = "cpu" if self.cuda is None else self.cuda.name.replace("cuda", "cu")
        return f"{self.glue.name}-{device}"

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """The files of glue, CPU kernels and CUDA kernels; None for kernels that are not loaded."""
        return tuple(file.path if file else None for file in (self.glue, self.cpu, self.cuda))

    def __repr__(self) -> str:
        return f"LoadedBinaries({self.variant!r}, {str(self.glue.path.parent)!r})"


class Loader:
    """Loads the binaries of one project, once per process.

    A client may have its own subclasses of the two errors that a loader raises.
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
        #: The arguments (with_cuda, build_directory) of the `jit.load` that loaded the binaries.
        self.compiled_with: tuple[bool | None, Path | None] | None = None
        self._loaded: LoadedBinaries | None = None
        self._checked: set[int] = set()

    def loaded(self) -> LoadedBinaries | None:
        return self._loaded

    def at_import(self) -> bool:
        """Loads the binaries for an import of the package; returns whether they are loaded.

        This method loads nothing if `$PREFIX_LOAD` is 0, nor for `python -m PACKAGE`, whose
        checker must work where no binary works.
        """
        if not (self._loaded or self._is_the_program() or self._setting("LOAD") == "0"):
            self.load()
        return self._loaded is not None

    def _is_the_program(self) -> bool:
        """Whether Python was started as `python -m PACKAGE`."""
        # While runpy imports the package, argv is "-m" and the arguments after the module's name.
        if sys.argv[:1] != ["-m"]:
            return False
        module = sys.orig_argv[-len(sys.argv)]  # "PACKAGE", or joined to options: "-mPACKAGE"
        name = self.project.package
        return module == name or (module.startswith("-") and module.endswith(f"m{name}"))

    def absent(self, name: str, names: Sequence[str]) -> Exception:
        """The exception for a missing attribute `name` of the package.

        `names` are the attributes that the package has once its binaries are loaded.
        """
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
        """Judges binaries, loads those it accepts; after a success, later calls return its result.

        `built` are the files to choose from, by default those of the package and of the build
        cache. Several threads may call this method at once. Raises BinariesImportError if no
        binaries fit, or torch, glue or CPU kernels cannot be loaded.
        """
        with self.lock:
            if self._loaded is None:
                self._loaded = self._judge_and_open(built)
            return self._loaded

    def _judge_and_open(self, built: Sequence[Path] | None) -> LoadedBinaries:
        runtime = self.import_runtime()
        paths, distrusted = list(built or ()), None
        if built is None:
            paths, distrusted = find_binaries(self.project, runtime.torch)
        selection = self.choose(paths, runtime, self._setting("VARIANT"))
        if selection.glue is None or not selection.complete:
            from ..doctor.explain import explain  # only a failure needs it

            cause = explain(selection, runtime, paths, distrusted)
            raise self._import_error(cause, self.project, selection)
        glue = selection.glue.binary
        cpu, cuda = (x.binary if x else None for x in (selection.cpu, selection.cuda))
        rejection = None
        on_cuda = runtime.torch is not None and runtime.torch.cuda is not None
        if cuda is None and on_cuda and "cuda" in self.project.kernels:
            from ..doctor.explain import no_cuda

            rejection = no_cuda(selection, runtime)
        library = self._open(glue, runtime, selection)
        if cpu is not None:
            self._attach(library, cpu, runtime, selection)
        if cuda is not None:
            try:
                self._attach(library, cuda, runtime, selection)
            except BinariesImportError as error:  # the CPU works; `check_cuda` raises the cause
                rejection, cuda = error.finding, None
        return LoadedBinaries(glue, cpu, cuda, rejection)

    def choose(self, paths: Sequence[Path], runtime: Runtime, forced: str | None) -> Selection:
        """Judges glues, then kernels that torch can use: each kind in order until one is accepted.

        `forced` is the value of `$PREFIX_VARIANT`. With `$PREFIX_SKIP_CHECK=1`, this method accepts
        the first file of each kind without judging it.
        """
        unchecked = self._setting("SKIP_CHECK") == "1"

        def judge_one(path: Path, facts: Runtime) -> Verdict:
            if unchecked:
                taken = Finding("not checked", OK, f"{self.project.variable('SKIP_CHECK')}=1", "")
                return Verdict(read_binary(path, light=True), (taken,))
            verdict = judge_file(path, facts, light=True)
            cause = verdict.cause.dimension if verdict.cause else ""
            if cause == "CUDA build of torch" and not facts.gpu_probed:
                # Kernels for a newer CUDA than torch's may work, so ask how new the driver is.
                from ..doctor.driver_probe import probe_driver

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
        """The error for a rejection. `said` is the finding's `needed`, `why`, `fix` and `fault`."""
        finding = Finding(dimension, REJECTED, printable(observed), *said)
        return self._import_error(finding, self.project, selection)

    def _setting(self, name: str) -> str | None:
        return os.environ.get(self.project.variable(name)) or None

    def import_runtime(self) -> Runtime:
        """The facts about this process and its torch; the GPU and its driver are not probed."""
        try:
            import torch
        except Exception as error:  # a broken torch can raise any exception
            here, observed = environment(self.project), f"{type(error).__name__}: {error}"
            why, fix = "import torch fails", fixes.reinstall_torch(here, None)
            if isinstance(error, ModuleNotFoundError) and error.name == "torch":
                why, fix = "torch is not installed", fixes.install_torch(here, self.project)
            said = "a torch that can be imported", why, fix, faults.TORCH_NOT_LOADED
            raise self._refused(None, "torch", observed, *said) from error
        try:
            install = from_module(torch)
        except TorchNotFoundError as error:
            place, why = str(getattr(torch, "__file__", None)), printable(str(error))
            fix, fault = "rename the file or folder that shadows torch", faults.TORCH_NOT_LOADED
            needed = "the torch package of PyTorch"
            raise self._refused(None, "torch", place, needed, why, fix, fault) from error
        return runtime_of(install, self.project)._replace(registered_by=self.registered_by(torch))

    def registered_by(self, torch: Any) -> str | None:
        """Names the library that has registered the operators already; None if there is none."""
        project = self.project
        try:
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
        """Loads an accepted file, and checks that the loaded object is this file.

        The build records of the two differ if another build replaced the file after the loading.
        """
        path, fault = str(binary.path), faults.PACKAGE_FILES
        if "$" in path and (word := re.search(_LINKER_TOKEN, path)):
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
        """Opens kernels and passes their table to the glue, which may refuse the table."""
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
        """Judges driver and GPU before the first computation on a CUDA device.

        Once a device has passed, later calls with its index return at once. None stands for the
        current device. Raises BinariesCudaError if the CUDA kernels are not loaded, or cannot run
        on this GPU.
        """
        index = device if isinstance(device, int) else getattr(device, "index", None)
        if index in self._checked:
            return
        import torch

        if not torch.cuda.is_available():
            return  # only a fake tensor can be on a CUDA device here
        if index is None:
            index = torch.cuda.current_device()
        # If this loader has loaded nothing, another library registered the op: judge nothing.
        if self._loaded and (finding := self._cuda_finding(index, self._loaded)):
            raise self._cuda_error(finding, self.project)
        self._checked.add(index)

    def _cuda_finding(self, index: int, binaries: LoadedBinaries) -> Finding | None:
        """Why the op cannot compute on this CUDA device; None if no cause is found."""
        import torch

        from ..doctor.driver_probe import probe_driver

        if "cuda" not in self.project.kernels:
            return None  # on CUDA devices, the project's operators call only torch
        if binaries.cuda is None:
            # Without a `cuda_rejection`, torch was no CUDA build when the binaries were loaded.
            fix = fixes.cuda_torch(environment(self.project), None)
            observed, needed = f"torch {torch.__version__}", "a CUDA build of torch"
            why = f"torch is a {'ROCm' if torch.version.hip else 'CPU-only'} build"
            said = observed, needed, why, fix, faults.CPU_TORCH_SWAPPED_IN
            return binaries.cuda_rejection or Finding("CUDA kernels", REJECTED, *said)
        if self._setting("SKIP_CHECK") == "1":
            return None
        capability = torch.cuda.get_device_capability(index)
        device = Device(index, torch.cuda.get_device_name(index), capability)
        facts = self.import_runtime()._replace(
            gpu_probed=True, driver=probe_driver(), devices=(device,), registered_by=None
        )
        return judge(binaries.cuda, facts).rejection
