"""Compiles the kernel objects and the glue."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ....builder import BuildRequest, ClangToolkit, CudaToolkit, execute
from ....builder import plan as plan_build
from ....judge.machine.torch_probe import find_torch
from ....judge.reading.binary import read_binary
from ... import ReleaseError
from ...matrix.cells import Cell, arch_list
from ...matrix.schema import Kernels
from ...matrix.settings import Settings
from ...paths import fresh
from ...plan.plan import Plan
from ...run.manifest import Binary
from ...run.shell import clean_env
from ...run.store import digest
from ...run.tasks import Context, FileTask, Task, Tasks
from ..step import Part, Step
from . import emulation
from .environments import FetchHeaders, MakeTorchEnv
from .toolchains import InstallRuntime, MakeToolkit, Toolchain, chosen_toolchain, resolve

# Environment variables that change the output of a compiler.
COMPILER_VARIABLES = ("CXX", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "DEBUG")


class Origin(NamedTuple):
    """What every object of a run is compiled from and by.

    The objects name it, or depend on it.
    """

    commit: str
    epoch: int
    compiler: str
    variables: Mapping[str, str]


def origin_of_objects(plan: Plan) -> Origin:
    return Origin(
        commit=plan.inputs.commit,
        epoch=plan.inputs.epoch,
        compiler=str(plan.host.compiler),
        variables={name: os.environ[name] for name in COMPILER_VARIABLES if name in os.environ},
    )


class CompileStep(Step[Path], FileTask):
    """Makes one shared object."""

    def part(self, made: Path, settings: Settings) -> Part:
        return Part(binaries={made.name: describe(made)})


def describe(path: Path) -> Binary:
    """The manifest's entry of a shared object."""
    binary = read_binary(path)
    return Binary(
        sha256=digest(path),
        size=binary.size,
        record=json.loads(binary.record.text) if binary.record else {},
        needed=list(binary.needed),
        versions={name: ".".join(map(str, v)) for name, v in binary.floors.items()},
    )


def objects_of(cell: Cell, plan: Plan) -> tuple[Task[Path], ...]:
    """The steps that make the cell's glue and its kernel objects."""
    kernels = (CompileKernels.plan(name, cell, plan) for name in cell.kernels)
    return (CompileGlue.plan(cell, plan), *kernels)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompileKernels(CompileStep):
    """Compiles a kernel object for the architectures of `kernels`.

    `toolkit` makes the CUDA toolkit, `runtime` installs CUDA's runtime for another platform.
    """

    kind = "kernels"
    object_name: str
    kernels: Kernels
    toolchain: Toolchain | None
    toolkit: Task[Path] | None
    runtime: Task[Path] | None
    origin: Origin

    @classmethod
    def plan(cls, name: str, cell: Cell, plan: Plan) -> "CompileKernels":
        """The step of one of the cell's kernel objects."""
        step = cls(
            name=f"{cls.kind}/{name}",
            object_name=name,
            kernels=plan.settings.matrix.kernels[name],
            toolchain=chosen_toolchain(name, plan),
            toolkit=MakeToolkit.plan(name, cell, plan),
            runtime=InstallRuntime.plan(name, cell, plan),
            origin=origin_of_objects(plan),
            inputs=plan.inputs.csrc,
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return tuple(task for task in (self.toolkit, self.runtime) if task)

    def run(self, context: Context) -> Sequence[Path]:
        cuda = _toolkit(context, self.toolchain, self.toolkit)
        if cuda is not None and self.runtime is not None:
            cuda = _with_runtime(cuda, context.output(self.runtime))
        request = BuildRequest(
            out_dir=context.settings.binaries / f"kernels-{self.object_name}",
            project=context.settings.project,
            kernels=(self.object_name,),
            cuda=cuda,
            architectures=arch_list(self.kernels.archs) or None,
            env=compiler_env(context.settings),
            launcher=compiler_cache(),
        )
        return build(context, request)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompileGlue(CompileStep):
    """Compiles a glue against the torch of the environment that `env` makes.

    `kernels`, `toolchain` and `toolkit` are those of the glue's own CUDA code; None without.
    """

    kind = "glue"
    glue: str
    cxx11_abi: int
    env: Task[Path]
    kernels: Kernels | None
    toolchain: Toolchain | None
    toolkit: Task[Path] | None
    origin: Origin

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "CompileGlue":
        has_cuda = cell.glue_object != cell.glue
        kernels = str(cell.variant.kernels)
        step = cls(
            name=f"{cls.kind}/{cell.glue_object}",
            glue=cell.glue_object,
            cxx11_abi=cell.cxx11_abi,
            env=FetchHeaders.plan(cell, plan) or MakeTorchEnv.plan(cell, plan),
            kernels=plan.settings.matrix.kernels[kernels] if has_cuda else None,
            toolchain=chosen_toolchain(kernels, plan) if has_cuda else None,
            toolkit=MakeToolkit.plan(kernels, cell, plan) if has_cuda else None,
            origin=origin_of_objects(plan),
            inputs=plan.inputs.csrc,
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.env, *([self.toolkit] if self.toolkit else []))

    def run(self, context: Context) -> Sequence[Path]:
        torch = find_torch(context.output(self.env))
        context.log.write(f"torch {torch.version}")
        if torch.cxx11_abi != self.cxx11_abi:
            raise ReleaseError(
                f"{self.glue} needs C++ ABI {self.cxx11_abi}, got torch {torch.version} with "
                f"{torch.cxx11_abi} in {torch.root}; correct `abi` in build_matrix.yaml or use "
                "another index"
            )
        request = BuildRequest(
            out_dir=context.settings.binaries / f"glue-{self.glue}",
            project=context.settings.project,
            glue=self.glue,
            torch=torch,
            kernels=(),
            cuda=_toolkit(context, self.toolchain, self.toolkit),
            architectures=arch_list(self.kernels.archs) if self.kernels else None,
            env=compiler_env(context.settings),
            launcher=compiler_cache(),
        )
        return build(context, request)


def _toolkit(
    context: Context, toolchain: Toolchain | None, toolkit: Task[Path] | None
) -> CudaToolkit | ClangToolkit | None:
    """The compiler of CUDA code, which the task `toolkit` makes unless it is installed."""
    if toolchain is None:
        return None
    context.log.write(f"compiled by {toolchain}")
    return resolve(toolchain, context.output(toolkit) if toolkit else None)


def _with_runtime(toolkit: CudaToolkit | ClangToolkit, folder: Path) -> CudaToolkit:
    """The toolkit with CUDA's runtime for another platform, which lies in `folder`."""
    if isinstance(toolkit, ClangToolkit):
        raise ReleaseError(
            f"{toolkit.clang}: clang++ compiles no CUDA kernels for another platform; install the "
            f"nvcc of CUDA {toolkit.version_text} and set CUDA_HOME"
        )
    return replace(toolkit, library_dirs=(str(folder),))


def compiler_env(settings: Settings) -> dict[str, str]:
    env = emulation.compilers(clean_env(settings.project), settings)
    # The matrix, not TORCH_CUDA_ARCH_LIST, sets the architectures of a release.
    env.pop("TORCH_CUDA_ARCH_LIST", None)
    return env


def compiler_cache() -> tuple[str, ...]:
    """The command of a compiler cache, if this machine has one."""
    program = shutil.which("ccache") or shutil.which("sccache")
    return (program,) if program else ()


def build(context: Context, request: BuildRequest) -> list[Path]:
    """Builds in a new folder without objects of earlier builds.

    Returns the shared objects.
    """
    objects = fresh(request.out_dir) / "objects"
    execute(plan_build(request), objects, context.jobs, context.log.write)
    return sorted(request.out_dir.glob("*.so"))
