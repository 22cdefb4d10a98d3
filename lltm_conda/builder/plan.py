"""What to compile and link for a request. Pure but for reading versions; runs no compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..compat.records import GlueName, KernelsName, TorchInstall, file_name
from .clang_cuda import ClangToolkit
from .cuda_steps import cuda_kernels
from .cuda_toolkit import CudaToolkit
from .errors import BuildError
from .host_compiler import HostCompiler, find_host_compiler
from .sources import source_root
from .targets import LINK, Step, Target, debug_wanted, host_flags, linker_flags

__all__ = ["BuildRequest", "Step", "cxx_standard", "debug_wanted", "door_flags", "plan"]


@dataclass(frozen=True)
class BuildRequest:
    """What is wanted.

    Attributes:
        out_dir: where the binaries go (`glue-*.so`, `kernels-*.so`).
        glue: `stable210`, `aten29-abi1`, ..., or None for kernels alone.
        torch: the torch whose headers and libraries the glue is compiled against.
        kernels: `cpu`, `cuda12`, `cuda13`.
        env: the environment: CXX, CXXFLAGS, LDFLAGS, CUDA_HOME, TORCH_CUDA_ARCH_LIST, DEBUG,
            SOURCE_DATE_EPOCH are honoured.
        cuda: the toolkit for CUDA kernels; found from `env` when None.
        architectures: as in TORCH_CUDA_ARCH_LIST, which overrides it.
        launcher: the command of a compiler cache, put before every compiler.
    """

    out_dir: Path
    glue: str | None = None
    torch: TorchInstall | None = None
    kernels: tuple[str, ...] = ("cpu",)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cuda: CudaToolkit | ClangToolkit | None = None
    architectures: str | None = None
    launcher: tuple[str, ...] = ()


def plan(request: BuildRequest) -> list[Step]:
    """All steps of a request, in an order in which they can run.

    Raises:
        BuildError: a compiler, torch or CUDA toolkit is missing or does not fit.
    """
    # ninja runs the steps in another folder.
    request = replace(request, out_dir=request.out_dir.absolute())
    compiler = find_host_compiler(request.env)
    steps: list[Step] = []
    for name in request.kernels:
        if KernelsName.parse(name).cuda_major is None:
            steps += _cpu_kernels(request, compiler)
        else:
            steps += cuda_kernels(request, compiler, name)
    if request.glue is not None:
        steps += _glue(request, compiler, request.glue)
    return steps


def _target(request: BuildRequest, file: str, compiler: HostCompiler) -> Target:
    return Target(request.out_dir, file, request.env, compiler, request.launcher)


def _cpu_kernels(request: BuildRequest, compiler: HostCompiler) -> list[Step]:
    target = _target(request, file_name(KernelsName()), compiler)
    base = [*compiler.command, "-std=c++17", *host_flags(request.env, "-O3")]
    for source in sorted((source_root() / "kernels" / "cpu").glob("*.cpp")):
        target.compile(source, base)
    target.record(
        base, device="cpu", cuda=None, cuda_archs=[], compiler=str(compiler), cxx_standard=17
    )
    return target.link([*compiler.command, *LINK, *linker_flags(request.env)], [])


def door_flags(glue: GlueName) -> list[str]:
    """What the sources of a door are compiled with, beside torch's headers."""
    if glue.lane == "stable":
        # The newest interface the object may use, as the headers encode a version.
        version = (glue.torch[0] << 56) | (glue.torch[1] << 48)
        return [f"-DTORCH_TARGET_VERSION={version:#018x}"]
    # ATen's parallel_for is OpenMP in a header: serial without the flag.
    return ["-DAT_PER_OPERATOR_HEADERS", "-fopenmp"]


def cxx_standard(torch: tuple[int, int]) -> int:
    """The oldest C++ standard that the headers of this torch accept."""
    return 20 if torch >= (2, 14) else 17


def _anywhere(torch: TorchInstall) -> list[str]:
    """Keeps out of the binary where torch lies: its headers name their files in messages."""
    sites = dict.fromkeys((torch.root.parent, torch.root.resolve().parent))
    return [f"-ffile-prefix-map={site}{os.sep}=" for site in sites]


def _glue(request: BuildRequest, compiler: HostCompiler, name: str) -> list[Step]:
    torch = request.torch
    if torch is None:
        raise BuildError(
            f"the glue {name} needs a torch to compile against, got none; install torch, or pass "
            "the one to build for"
        )
    parsed = GlueName.parse(name)
    target = _target(request, file_name(parsed), compiler)
    root = source_root()
    standard = cxx_standard(torch.version_tuple)
    door = root / ("torch_stable" if parsed.lane == "stable" else "torch_aten")
    base = [
        *compiler.command,
        f"-std=c++{standard}",
        *host_flags(request.env, "-O2"),
        f"-D_GLIBCXX_USE_CXX11_ABI={1 if torch.cxx11_abi is None else torch.cxx11_abi}",
        *_anywhere(torch),
        "-isystem",
        str(torch.include_dir),
        "-isystem",
        str(torch.include_dir / "torch" / "csrc" / "api" / "include"),
    ]
    # libtorch itself must stay needed: it is what brings libtorch_cuda into scope, where there is
    # one, for the weak references to CUDA functions.
    libraries = ["-Wl,--push-state,--no-as-needed", "-ltorch", "-ltorch_cpu", "-Wl,--pop-state"]
    if parsed.lane == "stable":
        if torch.version_tuple < parsed.torch:
            raise BuildError(
                f"the glue {name} needs the headers of torch {parsed.torch[0]}.{parsed.torch[1]} "
                f"or newer, got torch {torch.version} in {torch.root}; build the ATen glue instead"
            )
        libraries += ["-ldl"]  # for dlopen, before glibc 2.34
    else:
        if torch.version_tuple != parsed.torch or torch.cxx11_abi != parsed.cxx11_abi:
            raise BuildError(
                f"the glue {name} must be compiled against torch {parsed.torch[0]}."
                f"{parsed.torch[1]} with C++ ABI {parsed.cxx11_abi}, got torch {torch.version} "
                f"with C++ ABI {torch.cxx11_abi} in {torch.root}; point to a matching torch"
            )
        libraries += ["-lc10", "-fopenmp"]
    base += door_flags(parsed)
    for folder in (root / "ops", door):
        for source in sorted(folder.glob("*.cpp")):
            target.compile(source, base)
    target.record(
        base,
        lane=parsed.lane,
        torch_target=f"{parsed.torch[0]}.{parsed.torch[1]}",
        torch_built=torch.version,
        cxx11_abi=torch.cxx11_abi,
        compiler=str(compiler),
        cxx_standard=standard,
    )
    link = [*compiler.command, *LINK, *linker_flags(request.env)]
    paths = [f"-L{torch.lib_dir}", f"-Wl,-rpath-link,{torch.lib_dir}"]
    return target.link(link, [*paths, *libraries])
