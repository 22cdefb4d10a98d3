"""Loads a glue and kernels that fit, or raises an error that names the cause.

To judge a binary is to tell from its file whether it works here. The loader loads only files
that it has accepted in this process; it judges them unless `$PREFIX_SKIP_CHECK` is 1. The
loader imports torch to learn torch's facts, and judges a GPU only before the first
computation on that GPU (`check_cuda`). To keep the package's import quick, it judges few
files (see `selection`), and imports `explain` only if it has accepted no file of a kind that
torch could use.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..judge import fixes
from ..judge.cache import find_binaries
from ..judge.machine.runtime_probe import environment, mapped_files, runtime_of
from ..judge.machine.torch_probe import TorchNotFoundError, from_module
from ..judge.project import Project, Record
from ..judge.reading.binary import read_binary
from ..judge.records import (
    OK,
    REJECTED,
    BinaryRecord,
    Device,
    Finding,
    NameFormatError,
    Runtime,
    Verdict,
    variant_of,
)
from ..judge.target import Target
from ..judge.text import printable, read_regular
from ..judge.verdict.judgement import judge, judge_file
from ..judge.verdict.selection import Selection, select
from ..judge.words import codes, faults

if TYPE_CHECKING:
    import torch

# The tokens in a path that ld.so(8) replaces before opening the file.
_LINKER_TOKEN = r"\$(\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))"

#: In bytes; a glue has a few hundred kB.
_MAX_GLUE = 64 << 20


def describe(finding: Finding, project: Project, subject: str = "cannot be loaded") -> str:
    """The text of an error: cause, observed and needed value, fix, and the checker's command."""
    lines = [
        f"{project.distribution} {subject}: {finding.why or finding.dimension}",
        *(f"  {line}" for line in finding.lines),
        f"  the results for all binaries: {project.command}",
    ]
    return "\n".join(map(printable, lines))


class BinariesImportError(ImportError):
    """The binaries of the package cannot be loaded here; `finding` is the cause.

    `selection` holds the verdicts that led to it; None if the loader stopped before judging.
    """

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
    #: The CUDA kernels, or the glue if only that has code for CUDA; None if none were loaded.
    cuda: BinaryRecord | None
    #: Why no CUDA kernels were loaded although torch is a CUDA build and the project has CUDA
    #: kernels; else None.
    cuda_rejection: Finding | None
    variant: str  #: its name, such as `stable210-cu13`

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """The files of glue, CPU kernels and CUDA kernels; None for kernels not loaded."""
        kernels = None if self.cuda is self.glue else self.cuda
        binaries = (self.glue, self.cpu, kernels)
        return tuple(binary.path if binary else None for binary in binaries)

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
        self.target = Target()  #: the Python that runs, and what was read of its environment
        self._import_error = import_error
        self._cuda_error = cuda_error
        self.lock = threading.RLock()
        #: The arguments (with_cuda, build_directory) of the `jit.load` that loaded them.
        self.compiled_with: tuple[bool | None, Path | None] | None = None
        self._loaded: LoadedBinaries | None = None
        #: The indices of the CUDA devices that have passed `check_cuda`.
        self.checked_devices: set[int] = set()

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
        # While runpy imports the package, argv is "-m" and what follows the module's name.
        if sys.argv[:1] != ["-m"]:
            return False
        module = sys.orig_argv[-len(sys.argv)]  # "PACKAGE", or joined to options: "-mPACKAGE"
        name = self.project.package
        return module == name or (module.startswith("-") and module.endswith(f"m{name}"))

    def absent(self, name: str, names: Sequence[str]) -> Exception:
        """The exception for a missing attribute `name` of the package.

        `names` are the attributes that the package has once its binaries are loaded.
        """
        package = self.project.package
        variable = self.project.variable("LOAD")
        if name not in names:
            return AttributeError(f"module {package!r} has no attribute {name!r}")
        return ImportError(
            f"{package}.{name} is not there, because {variable}=0 lets the package be "
            f"imported without its binaries; unset {variable} and start Python again, "
            f"or call {package}.jit.load()",
            name=package,
        )

    def load(self, built: Sequence[Path] | None = None) -> LoadedBinaries:
        """Judges binaries and loads the best accepted ones; later calls return the first result.

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
        distrusted = None
        if built is None:
            paths, distrusted = find_binaries(self.project, runtime.torch)
        else:
            paths = list(built)
        is_resumed = runtime.registered_by is not None
        if is_resumed:
            paths, runtime = self._resume(paths, runtime)
        selection = self.choose(paths, runtime, self._setting("VARIANT"))
        if selection.glue is None or not selection.complete:
            from ..judge.verdict.explain import explain  # only a failure needs it

            cause = explain(selection, runtime, paths, distrusted)
            raise self._refused(selection, cause)
        if not is_resumed:
            self._check_operators(selection.glue.binary.path)
        return self._open_selected(selection, selection.glue.binary, runtime)

    def _open_selected(
        self, selection: Selection, glue: BinaryRecord, runtime: Runtime
    ) -> LoadedBinaries:
        """Loads the binaries of a complete selection and joins them."""
        cpu = selection.cpu.binary if selection.cpu else None
        cuda = selection.cuda.binary if selection.cuda else None
        is_cuda_glue = glue.record is not None and glue.record.cuda is not None
        if is_cuda_glue or cuda is not None:
            cuda_rejection = None
        else:
            cuda_rejection = self._why_no_cuda(selection, runtime)
        library = self._open(glue, runtime, selection)
        if cpu is not None:
            self._attach(library, cpu, runtime, selection)
        if cuda is not None:
            try:
                self._attach(library, cuda, runtime, selection)
            except BinariesImportError as error:
                # The CPU works; `check_cuda` raises the cause.
                cuda_rejection = error.finding
                cuda = None
        if operators := self._report_of(library, "autocast_operators"):
            from .autocast import register_autocast

            register_autocast(operators, self.project)
        kernels = cuda.name if cuda else None
        return LoadedBinaries(
            glue=glue,
            cpu=cpu,
            cuda=glue if is_cuda_glue and cuda is None else cuda,
            cuda_rejection=cuda_rejection,
            variant=variant_of(glue.name, kernels, self.project),
        )

    def _why_no_cuda(self, selection: Selection, runtime: Runtime) -> Finding | None:
        """Why a CUDA build of torch gets no CUDA kernels; None for another torch or project."""
        is_cuda_torch = runtime.torch is not None and runtime.torch.cuda is not None
        if not is_cuda_torch or not self.project.has_cuda:
            return None
        from ..judge.verdict.explain import no_cuda

        return no_cuda(selection, runtime)

    def choose(self, paths: Sequence[Path], runtime: Runtime, forced: str | None) -> Selection:
        """Judges glues, then kernels that torch can use: each kind until one is accepted.

        `forced` is the value of `$PREFIX_VARIANT`. With `$PREFIX_SKIP_CHECK=1`, this method
        accepts the first file of each kind without judging it.
        """
        try:
            return select(paths, runtime, self._judge_one, forced=forced)
        except NameFormatError as error:
            variable = self.project.variable("VARIANT")
            finding = Finding(
                dimension=variable,
                status=REJECTED,
                code=codes.VARIANT_UNKNOWN,
                observed=printable(repr(forced)),
                needed="the name of a variant, or nothing",
                why=str(error),
                fix=fixes.unset(variable),
            )
            raise self._refused(None, finding) from None

    def _judge_one(self, path: Path, runtime: Runtime) -> Verdict:
        if self._setting("SKIP_CHECK") == "1":
            unchecked = Finding(
                dimension="not checked",
                status=OK,
                observed=f"{self.project.variable('SKIP_CHECK')}=1",
                needed="",
            )
            return Verdict(read_binary(path, light=True), (unchecked,))
        verdict = judge_file(path, runtime, light=True)
        cause = verdict.cause
        if cause and cause.code == codes.DRIVER_UNKNOWN and not runtime.gpu_probed:
            # Kernels for a newer CUDA than torch's may work, so ask how new the driver is.
            from ..judge.machine.driver_probe import probe_driver

            runtime = runtime._replace(gpu_probed=True, driver=probe_driver())
            verdict = judge_file(verdict.binary, runtime, light=True)
        return verdict

    def _refused(self, selection: Selection | None, finding: Finding) -> BinariesImportError:
        return self._import_error(finding, self.project, selection)

    def _setting(self, name: str) -> str | None:
        return os.environ.get(self.project.variable(name)) or None

    def import_runtime(self) -> Runtime:
        """The facts about this process and its torch, without the GPU and its driver."""
        try:
            import torch
        except Exception as error:  # a broken torch can raise any exception
            raise self._refused(None, self._torch_failure(error)) from error
        try:
            install = from_module(torch)
        except TorchNotFoundError as error:
            finding = Finding(
                dimension="torch",
                status=REJECTED,
                code=codes.TORCH_SHADOWED,
                observed=printable(str(getattr(torch, "__file__", None))),
                needed="the torch package of PyTorch",
                why=printable(str(error)),
                fix=fixes.in_words("rename the file or folder that shadows torch"),
                fault=faults.TORCH_NOT_LOADED,
            )
            raise self._refused(None, finding) from error
        runtime = runtime_of(self.target, install, self.project)
        return runtime._replace(registered_by=self.registered_by(torch))

    def _torch_failure(self, error: Exception) -> Finding:
        """The cause if `import torch` raises `error`."""
        place = environment(self.target, self.project)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            why = "torch is not installed"
            code = codes.TORCH_MISSING
            fix = fixes.install_torch(place, self.project)
        else:
            why = "import torch fails"
            code = codes.TORCH_DOES_NOT_LOAD
            fix = fixes.reinstall_torch(place, None)
        return Finding(
            dimension="torch",
            status=REJECTED,
            code=code,
            observed=printable(f"{type(error).__name__}: {error}"),
            needed="a torch that can be imported",
            why=why,
            fix=fix,
            fault=faults.TORCH_NOT_LOADED,
        )

    def registered_by(self, torch: ModuleType) -> str | None:
        """Names the library that has registered the project's namespace in torch; None if none."""
        if not _is_registered(torch, self.project):
            return None
        glue = self._registered_glue()
        return "another library of this process" if glue is None else str(glue)

    def _registered_glue(self) -> Path | None:
        """The loaded glue whose C symbols have the project's namespace, of whichever package."""
        for path in mapped_files("glue-"):
            with suppress(OSError):  # the file is mapped, but not loaded
                library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
                if hasattr(library, self.project.symbol("build_record")):
                    return path
        return None

    def _resume(self, paths: list[Path], runtime: Runtime) -> tuple[list[Path], Runtime]:
        """What to choose from, and for which runtime, if the namespace is registered already.

        An import that was stopped, as by Ctrl-C, after its glue was loaded leaves the
        operators registered. The next import goes on with this very glue. Of another copy of
        the project, `judge` tells. Raises BinariesImportError if the namespace is another
        project's.
        """
        registrant = Path(runtime.registered_by or "")
        if registrant in [path.resolve() for path in paths]:
            fitting = [
                path
                for path in paths
                if path.resolve() == registrant or not path.name.startswith("glue-")
            ]
            return fitting, runtime._replace(registered_by=None)
        record = read_binary(registrant, light=True).record
        if record is not None and record.package == self.project.distribution:
            return paths, runtime
        owner = f"{record.package}: " if record is not None else ""
        raise self._taken(self.project.operators, f"{owner}{runtime.registered_by}")

    def _check_operators(self, glue: Path) -> None:
        """Raises BinariesImportError if a program has defined an operator that the glue defines.

        Torch throws for the second definition, which would end the process.
        """
        import torch

        namespace = self.project.namespace
        for name in _operators_in(glue):
            if _has_schema(torch, f"{namespace}::{name}"):
                operator = f"torch.ops.{namespace}.{name}"
                raise self._taken(operator, "another library of this process")

    def _taken(self, operators: str, registrant: str) -> BinariesImportError:
        """The error if another project has registered the project's operators, or one of them."""
        finding = Finding(
            dimension="op registration",
            status=REJECTED,
            code=codes.REGISTERED_TWICE,
            observed=printable(f"registered already by {registrant}"),
            needed=f"{operators} registered by {self.project.distribution} alone",
            why=f"another project has registered {operators} in this process",
            fix=fixes.in_words(
                f"start Python again and import {self.project.package} without the other project; "
                "if one of the two is yours, give it another namespace",
            ),
            fault=faults.REGISTERED_TWICE,
        )
        return self._refused(None, finding)

    def _open(self, binary: BinaryRecord, runtime: Runtime, selection: Selection) -> ctypes.CDLL:
        """Loads an accepted file, and checks that the loaded object is this file.

        Their build records differ if another build replaced the file after the loading.
        """
        path = str(binary.path)
        if "$" in path and (token := re.search(_LINKER_TOKEN, path)):
            finding = Finding(
                dimension="path",
                status=REJECTED,
                code=codes.PATH_NOT_LOADABLE,
                observed=printable(path),
                needed=f"a path without {token[0]}",
                why=f"the path of {binary.file} holds {token[0]}, "
                "which the dynamic linker replaces",
                fix=fixes.in_words("rename or move that folder, and start Python again"),
                fault=faults.PACKAGE_FILES,
            )
            raise self._refused(selection, finding)
        try:
            if binary.kind == "glue":
                import torch

                torch.ops.load_library(path)
            library = ctypes.CDLL(path)
        except OSError as error:
            raise self._refused(selection, _loading_failure(binary, runtime, error)) from error
        reported = self._report_of(library, "build_record")
        written = binary.record.text if binary.record else ""
        if reported != written:
            finding = Finding(
                dimension="build record",
                status=REJECTED,
                code=codes.FILE_OF_ANOTHER_BUILD,
                observed=printable(reported or "nothing"),
                needed=written or "a build record in the file",
                why=f"{binary.file} on disk is not the one that is loaded in this process",
                fix=fixes.in_words("restart Python"),
                fault=faults.PACKAGE_FILES,
            )
            raise self._refused(selection, finding)
        return library

    def _report_of(self, library: ctypes.CDLL, name: str) -> str:
        """The text that a loaded object's function of this name returns; "" without one."""
        try:
            function = getattr(library, self.project.symbol(name))
        except (AttributeError, UnicodeDecodeError):  # the message of the first has the path
            return ""
        function.restype = ctypes.c_char_p
        return (function() or b"").decode("utf-8", "replace")

    def _attach(
        self, glue: ctypes.CDLL, kernels: BinaryRecord, runtime: Runtime, selection: Selection
    ) -> None:
        """Opens kernels and passes their table to the glue, which may refuse the table."""
        library = self._open(kernels, runtime, selection)
        table = getattr(library, self.project.symbol("kernel_table"))
        table.restype = ctypes.c_void_p
        attach = getattr(glue, self.project.symbol("attach_kernels"))
        attach.argtypes = [ctypes.c_void_p]
        attach.restype = ctypes.c_char_p
        refusal = attach(table())
        if refusal is not None:
            finding = Finding(
                dimension="kernel table",
                status=REJECTED,
                code=codes.FILE_OF_ANOTHER_BUILD,
                observed=printable(refusal),
                needed="kernels of the same build as the glue",
                why=f"the glue refused {kernels.file}",
                fix=fixes.reinstall(runtime),
                fault=faults.PACKAGE_FILES,
            )
            raise self._refused(selection, finding)

    def check_cuda(self, device: torch.device | int | None = None) -> None:
        """Judges driver and GPU before the first computation on a CUDA device.

        Once a device has passed, later calls with its index return at once. None stands for
        the current device. Raises BinariesCudaError if the CUDA kernels are not loaded, or
        cannot run on this GPU.
        """
        index = device if isinstance(device, int) else getattr(device, "index", None)
        if index in self.checked_devices:
            return
        import torch

        if not torch.cuda.is_available():
            return  # only a fake tensor can be on a CUDA device here
        if index is None:
            index = torch.cuda.current_device()
        # If this loader has loaded nothing, another library registered the op: judge nothing.
        if self._loaded and (finding := self._cuda_finding(index, self._loaded)):
            raise self._cuda_error(finding, self.project)
        self.checked_devices.add(index)

    def _cuda_finding(self, index: int, binaries: LoadedBinaries) -> Finding | None:
        """Why the op cannot compute on this CUDA device; None if no cause is found."""
        import torch

        from ..judge.machine.driver_probe import probe_driver

        if not self.project.has_cuda:
            return None  # on CUDA devices, the project's operators call only torch
        if binaries.cuda is None:
            return binaries.cuda_rejection or self._cpu_torch()
        if self._setting("SKIP_CHECK") == "1":
            return None
        device = Device(
            index=index,
            name=torch.cuda.get_device_name(index),
            capability=torch.cuda.get_device_capability(index),
        )
        runtime = self.import_runtime()._replace(
            gpu_probed=True, driver=probe_driver(), devices=(device,), registered_by=None
        )
        return judge(binaries.cuda, runtime).rejection

    def _cpu_torch(self) -> Finding:
        """The cause if torch was no CUDA build when the binaries were loaded."""
        import torch

        return Finding(
            dimension="CUDA kernels",
            status=REJECTED,
            code=codes.CUDA_TORCH_NEEDED,
            observed=f"torch {torch.__version__}",
            needed="a CUDA build of torch",
            why=f"torch is a {'ROCm' if torch.version.hip else 'CPU-only'} build",
            fix=fixes.cuda_torch(environment(self.target, self.project), None),
            fault=faults.CPU_TORCH_SWAPPED_IN,
        )


def _is_registered(torch: ModuleType, project: Project) -> bool:
    """Whether some library has registered the operators, or anything in their namespace."""
    dispatcher = torch._C
    try:
        if dispatcher._dispatch_has_kernel(f"{project.namespace}::{project.operator}"):
            return True
        # Torch takes one library for each namespace and throws for a second, which ends the
        # process while the dynamic linker loads it. This one is given back at once.
        dispatcher._dispatch_library("DEF", project.namespace, "", __file__, 0)
    except RuntimeError:
        return True
    except (AttributeError, TypeError):  # another torch than those that were measured
        return False
    return False


def _operators_in(glue: Path) -> set[str]:
    """The operators whose schemas, such as `forward(Tensor x) -> Tensor`, are in a glue."""
    content = read_regular(glue, _MAX_GLUE)
    names = set()
    arrow = content.find(b"->")
    while arrow >= 0:
        start = content.rfind(b"\0", 0, arrow) + 1
        name = content[start:arrow].partition(b"(")[0].decode("ascii", "replace")
        if name.isidentifier():
            names.add(name)
        arrow = content.find(b"->", arrow + 2)
    return names


def _has_schema(torch: ModuleType, operator: str) -> bool:
    with suppress(AttributeError, TypeError, RuntimeError):  # RuntimeError: it has none
        # A question that torch answers without an exception, which would take 0.2 ms.
        if torch._C._dispatch_has_kernel(operator):
            torch._C._dispatch_find_schema_or_throw(operator, "")
            return True
    return False


def _loading_failure(binary: BinaryRecord, runtime: Runtime, error: OSError) -> Finding:
    """The cause if the dynamic linker refuses a file that `judge` has accepted."""
    from ..judge.words import messages  # only a failure needs them

    # torch >= 2.9 hides the linker's message behind "Could not load this library".
    message = printable(str(error.__cause__ or error))
    fault = messages.classify(message)
    title = f" ({fault.title})" if fault else ""
    return Finding(
        dimension="loading",
        status=REJECTED,
        code=codes.LOAD_FAILED,
        observed=message,
        needed=f"{binary.file} accepted by the dynamic linker",
        why=f"{binary.file} was accepted but could not be loaded{title}",
        fix=fixes.fit_torch(runtime),
        fault=fault,
    )
