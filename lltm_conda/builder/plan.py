"""What to compile and link for a request. Compiles nothing; runs tools only for their versions."""

from __future__ import annotations

import os
from dataclasses import replace

from ..compat.records import GlueName, KernelsName, TorchInstall, file_name
from .cuda_steps import cuda_kernels
from .errors import BuildError
from .host_compiler import HostCompiler, find_host_compiler
from .request import BuildRequest
from .sources import source_root
from .targets import Step, Target, host_flags, link_flags


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


def _cpu_kernels(request: BuildRequest, compiler: HostCompiler) -> list[Step]:
    target = Target(request, file_name(KernelsName()), compiler)
    base = [*compiler.command, "-std=c++17", *host_flags(request.env, "-O3")]
    for source in sorted((source_root() / "kernels" / "cpu").glob("*.cpp")):
        target.compile(source, base)
    target.record(
        base, device="cpu", cuda=None, cuda_archs=[], compiler=str(compiler), cxx_standard=17
    )
    return target.link([*compiler.command, *link_flags(request.env)], [])


def _door_flags(glue: GlueName) -> list[str]:
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


def _require_fitting(torch: TorchInstall, glue: GlueName) -> None:
    wanted = f"{glue.torch[0]}.{glue.torch[1]}"
    if glue.lane == "stable":
        if torch.version_tuple < glue.torch:
            raise BuildError(
                f"the glue {glue} needs the headers of torch {wanted} or newer, got torch "
                f"{torch.version} in {torch.root}; build the ATen glue instead"
            )
    elif torch.version_tuple != glue.torch or torch.cxx11_abi != glue.cxx11_abi:
        raise BuildError(
            f"the glue {glue} must be compiled against torch {wanted} with C++ ABI "
            f"{glue.cxx11_abi}, got torch {torch.version} with C++ ABI {torch.cxx11_abi} in "
            f"{torch.root}; point to a matching torch"
        )


def _glue(request: BuildRequest, compiler: HostCompiler, name: str) -> list[Step]:
    torch, glue = request.torch, GlueName.parse(name)
    if torch is None:
        raise BuildError(
            f"the glue {name} needs a torch to compile against, got none; install torch, or pass "
            "the one to build for"
        )
    _require_fitting(torch, glue)
    target = Target(request, file_name(glue), compiler)
    standard = cxx_standard(torch.version_tuple)
    # torch's headers name their files in messages: the folder of torch stays out of the binary.
    sites = dict.fromkeys((torch.root.parent, torch.root.resolve().parent))
    base = [
        *compiler.command,
        f"-std=c++{standard}",
        *host_flags(request.env, "-O2"),
        f"-D_GLIBCXX_USE_CXX11_ABI={1 if torch.cxx11_abi is None else torch.cxx11_abi}",
        *(f"-ffile-prefix-map={site}{os.sep}=" for site in sites),
        *("-isystem", str(torch.include_dir)),
        *("-isystem", str(torch.include_dir / "torch" / "csrc" / "api" / "include")),
        *_door_flags(glue),
    ]
    for folder in ("ops", f"torch_{glue.lane}"):
        for source in sorted((source_root() / folder).glob("*.cpp")):
            target.compile(source, base)
    target.record(
        base,
        lane=glue.lane,
        torch_target=f"{glue.torch[0]}.{glue.torch[1]}",
        torch_built=torch.version,
        cxx11_abi=torch.cxx11_abi,
        compiler=str(compiler),
        cxx_standard=standard,
    )
    libraries = [
        f"-L{torch.lib_dir}",
        f"-Wl,-rpath-link,{torch.lib_dir}",
        # libtorch must stay needed although no symbol of it is used: where there is a libtorch_cuda
        # it brings that into scope, for the weak references to CUDA functions.
        *("-Wl,--push-state,--no-as-needed", "-ltorch", "-ltorch_cpu", "-Wl,--pop-state"),
        # dlopen is in libdl before glibc 2.34.
        *(["-ldl"] if glue.lane == "stable" else ["-lc10", "-fopenmp"]),
    ]
    return target.link([*compiler.command, *link_flags(request.env)], libraries)
