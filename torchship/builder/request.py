"""What to build: a request names the binaries, the sources and the tools."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..judge.project import Project
from ..judge.records import GlueName, TorchInstall, dotted
from ..judge.support import load
from .cuda_toolkit import (
    NO_NVCC,
    ClangToolkit,
    CudaToolkit,
    default_architectures,
    find_cuda_toolkit,
)
from .options import BuildOptions, read_options
from .programs import BuildError, HostCompiler, Log, find_host_compiler, read_flag
from .sources import source_root

# The first torch whose stable ABI has all that the op needs; one glue serves it and later
# ones.
FIRST_STABLE = (2, 10)


@dataclass(frozen=True)
class BuildRequest:
    """The binaries to build, the sources, and the tools."""

    out_dir: Path  #: for the binaries (`glue-*.so`, `kernels-*.so`)
    project: Project  #: whose sources to compile
    glue: str | None = None  #: its name (`stable210`, ...); None for kernels alone
    torch: TorchInstall | None = None  #: whose headers and libraries the glue is compiled against
    kernels: tuple[str, ...] = ("cpu",)  #: their names (`cpu`, `cuda12`, `cuda13`)
    #: CXX, CXXFLAGS, LDFLAGS, CUDA_HOME, CUDAHOSTCXX, TORCH_CUDA_ARCH_LIST and DEBUG have
    #: their usual meanings.
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cuda: CudaToolkit | ClangToolkit | None = None  #: None: what `find_cuda_toolkit` finds
    architectures: str | None = None  #: the default for TORCH_CUDA_ARCH_LIST, in its syntax
    #: A compiler cache's command, put before all compilations but those by a CXX of several
    #: words.
    launcher: tuple[str, ...] = ()

    @property
    def csrc(self) -> Path:
        return source_root(self.project.folder)

    @cached_property
    def options(self) -> BuildOptions:
        """What `build:` of the project's matrix says."""
        return read_options(self.project)

    @property
    def generated_dir(self) -> Path:
        """The folder of the sources and headers that the project's own programs write."""
        return self.out_dir / "generated"

    @cached_property
    def compiler(self) -> HostCompiler:
        return find_host_compiler(self.env)


def glue_for(torch: TorchInstall, project: Project) -> str:
    """The name of the glue that fits `torch`: `stable210`, or `aten29-abi1` and the like.

    It is the name without CUDA, also where the glue has CUDA code.
    """
    if project.is_stable and torch.version_tuple >= FIRST_STABLE:
        return str(GlueName("stable", FIRST_STABLE))
    oldest = load(project.folder).torch_min
    if torch.version_tuple < oldest:
        raise BuildError(
            f"{project.distribution} needs torch {dotted(oldest)} or newer, "
            f"got {torch.version} in {torch.root}; "
            "upgrade torch: pip install --upgrade torch"
        )
    if torch.cxx11_abi is None:
        raise BuildError(
            f"the C++ ABI of torch {torch.version} in {torch.root} "
            "cannot be told from its libc10; "
            "install this release of torch again, with the command that installed it"
        )
    return str(GlueName("aten", torch.version_tuple, torch.cxx11_abi))


def fitting_request(
    project: Project,
    torch: TorchInstall,
    out_dir: Path,
    env: Mapping[str, str] | None = None,
    *,
    log: Log = print,
) -> BuildRequest:
    """The request for the one variant that fits `torch` and this machine's compilers.

    The variant has CUDA kernels if the project has them, torch is a CUDA build, and there is
    an nvcc that is not too old and whose CUDA major is not newer than torch's. FORCE_CUDA=1
    demands CUDA kernels, even by a newer nvcc or for a torch without CUDA; FORCE_CUDA=0
    leaves them out. A project whose code is for CUDA alone demands them too.
    """
    env = dict(os.environ) if env is None else env
    glue = glue_for(torch, project)
    toolkit = _choose_toolkit(torch, project, env, log) if project.has_cuda else None
    kernels: tuple[str, ...] = ("cpu",) if "cpu" in project.kernels else ()
    if toolkit is not None and "cuda" in project.kernels:
        kernels += (f"cuda{toolkit.version[0]}",)
    if toolkit is not None and project.has_cuda_glue:
        glue = str(GlueName.parse(glue)._replace(cuda_major=toolkit.version[0]))
    return BuildRequest(
        out_dir=out_dir,
        project=project,
        glue=glue,
        torch=torch,
        kernels=kernels,
        env=env,
        cuda=toolkit,
    )


def _choose_toolkit(
    torch: TorchInstall, project: Project, env: Mapping[str, str], log: Log
) -> CudaToolkit | None:
    """The nvcc for CUDA kernels; None, and why to `log`, if they must be left out."""
    forced = read_flag(env, "FORCE_CUDA")
    if project.is_for_cuda_alone and forced is not True:
        return _only_toolkit(torch, project, env, log)
    if forced is False or (forced is None and torch.cuda is None):
        return None  # FORCE_CUDA=0, or a torch without CUDA
    toolkit = find_cuda_toolkit(env, [torch.root.parent], major=torch.cuda_major)
    try:
        return _check_toolkit(toolkit, torch, project, env, log=log)
    except BuildError as error:
        if forced:
            raise
        log(f"{error}. Building for the CPU only")
        return None


def _only_toolkit(
    torch: TorchInstall, project: Project, env: Mapping[str, str], log: Log
) -> CudaToolkit | None:
    """The nvcc of a project whose code is for CUDA alone; None with FORCE_CUDA=0.

    Its kernels may be left out, but not the CUDA code of its glue, of which nothing would remain.
    """
    name = project.distribution
    code = "kernels" if project.has_cpu_glue else "code"
    without = "its operators without kernels, which can be traced and exported but not run"
    if read_flag(env, "FORCE_CUDA") is False:
        if not project.has_cpu_glue:
            raise BuildError(
                f"{name} has code for CUDA alone, and FORCE_CUDA=0 leaves it out: unset FORCE_CUDA"
            )
        log(f"building {without}, since FORCE_CUDA=0")
        return None
    toolkit = find_cuda_toolkit(env, [torch.root.parent], major=torch.cuda_major)
    if toolkit is None:
        otherwise = f", or set FORCE_CUDA=0 to build {without}" if project.has_cpu_glue else ""
        raise BuildError(
            f"{name} has {code} for CUDA alone, but no nvcc was found: {NO_NVCC}{otherwise}"
        )
    return _check_toolkit(toolkit, torch, project, env, log=log)


def _check_toolkit(
    toolkit: CudaToolkit | None,
    torch: TorchInstall,
    project: Project,
    env: Mapping[str, str],
    *,
    log: Log,
) -> CudaToolkit:
    """Returns the toolkit if it can compile kernels for `torch`; otherwise raises BuildError."""
    forced = read_flag(env, "FORCE_CUDA")
    if toolkit is None:
        demand = "FORCE_CUDA=1" if forced else f"torch {torch.version} is a CUDA build and"
        # Code for CUDA alone refuses FORCE_CUDA=0.
        otherwise = ", or set FORCE_CUDA=0" if project.has_cpu_glue else ""
        raise BuildError(
            f"{demand} asks for CUDA kernels, but no nvcc was found: {NO_NVCC}{otherwise}"
        )
    if not env.get("TORCH_CUDA_ARCH_LIST"):
        default_architectures(toolkit.version, toolkit.architectures())  # raises for an old nvcc
    if torch.cuda_major is None or toolkit.version[0] <= torch.cuda_major:
        return toolkit
    newer = (
        f"nvcc {toolkit.version_text} is newer than the CUDA {torch.cuda} of torch "
        f"{torch.version}: its kernels need a driver for CUDA {toolkit.version[0]}, which may "
        "be missing where that torch runs"
    )
    if not forced:
        raise BuildError(
            f"{newer}; set CUDA_HOME to a CUDA {torch.cuda_major} toolkit, "
            "or FORCE_CUDA=1 if the driver is new enough"
        )
    log(f"{newer}; building the kernels since FORCE_CUDA=1")
    return toolkit
