"""What to compile and link for a request. Compiles nothing; runs tools only for their versions.

CUDA kernels are made by nvcc, or by clang where there is no nvcc.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import replace

from ..compat.records import GlueName, KernelsName, dotted, file_name
from .clang_cuda import ClangToolkit
from .cuda_toolkit import (
    NO_NVCC,
    CudaToolkit,
    architecture_flags,
    default_architectures,
    find_cuda_toolkit,
    parse_architectures,
)
from .programs import BuildError, HostCompiler, find_host_compiler
from .sources import glue_sources, kernel_sources
from .targets import BuildRequest, Step, Target, flag, host_flags, link_flags

_CUDA_NAMES = {"aarch64": "sbsa"}


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
        if name.rstrip("0123456789") not in request.project.kernels:
            raise BuildError(
                f"{request.project.distribution} has no {name} kernels; leave them out"
            )
        if KernelsName.parse(name).cuda_major is None:
            steps += _cpu_kernels(request, compiler)
        else:
            steps += _cuda_kernels(request, compiler, name)
    if request.glue is not None:
        steps += _glue(request, compiler, request.glue)
    return steps


def _cpu_kernels(request: BuildRequest, compiler: HostCompiler) -> list[Step]:
    target = Target(request, file_name(KernelsName()), compiler)
    base = [*compiler.command, "-std=c++17", *host_flags(request, "-O3")]
    for source in kernel_sources(request.csrc, "cpu"):
        target.compile(source, base)
    target.record(
        base, device="cpu", cuda=None, cuda_archs=[], compiler=str(compiler), cxx_standard=17
    )
    return target.link([*compiler.command, *link_flags(request.env)], [])


def _cuda_kernels(request: BuildRequest, compiler: HostCompiler, name: str) -> list[Step]:
    kernels = KernelsName.parse(name)
    toolkit = request.cuda or find_cuda_toolkit(request.env, major=kernels.cuda_major)
    if toolkit is None:
        raise BuildError(
            f"the {name} kernels need nvcc, but there is none: {NO_NVCC}, or unset FORCE_CUDA"
        )
    if toolkit.version[0] != kernels.cuda_major:
        raise BuildError(
            f"the {name} kernels need an nvcc {kernels.cuda_major}.x, got {toolkit.version_text} "
            f"({toolkit.place}); set CUDA_HOME to a CUDA {kernels.cuda_major} toolkit"
        )
    listed = request.env.get("TORCH_CUDA_ARCH_LIST") or request.architectures
    compiled = toolkit.architectures()
    architectures = parse_architectures(
        listed or default_architectures(toolkit.version, compiled), compiled
    )
    target = Target(request, file_name(kernels), compiler)
    if isinstance(toolkit, CudaToolkit):
        return _by_nvcc(target, toolkit, architectures)
    return _by_clang(target, toolkit, architectures)


def _record(
    target: Target, toolkit: CudaToolkit | ClangToolkit, architectures: Sequence[str], compiler: str
) -> None:
    target.record(
        [*target.compiler.command, "-std=c++17", *host_flags(target.request, "-O2")],
        device="cuda",
        cuda=toolkit.version_text,
        cuda_archs=list(architectures),
        compiler=f"{compiler}, {target.compiler}",
        cxx_standard=17,
    )


def _by_nvcc(target: Target, toolkit: CudaToolkit, architectures: Sequence[str]) -> list[Step]:
    env = target.request.env
    host = [flag for flag in host_flags(target.request, "-O3") if flag not in ("-O3", "-O0", "-g")]
    level = ["-O0", "-g", "-lineinfo"] if flag(env, "DEBUG") else ["-O3"]
    # nvcc's -ccbin takes one program, so a launcher before the host compiler is left out.
    ccbin = ["-ccbin", env.get("CUDAHOSTCXX") or target.compiler.command[-1]]
    here = platform.machine()
    if target.compiler.machine not in ("", here):
        # With a cross compiler, nvcc would look for the headers of that platform's toolkit, which
        # is not here. This machine's headers are the same.
        ccbin += ["--target-directory", f"{_CUDA_NAMES.get(here, here)}-linux"]
    base = [
        toolkit.nvcc,
        "-std=c++17",
        *level,
        *ccbin,
        *architecture_flags(architectures),
        # Machine code is three quarters of a wheel. Every driver for CUDA 13 reads this
        # compression; drivers for CUDA 12 before 12.4 do not.
        *(["--compress-mode=size"] if toolkit.version >= (13, 0) else []),
        *(part for flag in host for part in _through_nvcc("-Xcompiler", flag)),
    ]
    for source in kernel_sources(target.request.csrc, "cuda"):
        target.compile(source, base)
    _record(target, toolkit, architectures, f"nvcc {toolkit.version_text}")
    # No kernel calls a device function of another file, and nvlink would store the folders of -L.
    link = [toolkit.nvcc, "-cudart", "static", *ccbin, "-shared", "--no-device-link"]
    # Local symbols hold the name of the source's folder; the bytes must not depend on it.
    link += ["-Xlinker", "--strip-all"]
    for option in link_flags(env)[1:]:  # nvcc has its own -shared, above
        # nvcc splits the value of -Xcompiler at commas, so linker flags go to the linker directly.
        if option.startswith("-Wl,"):
            for word in option.removeprefix("-Wl,").split(","):
                link += _through_nvcc("-Xlinker", word)
        else:
            link += _through_nvcc("-Xcompiler", option)
    return target.link(link, [f"-L{folder}" for folder in toolkit.library_dirs])


def _through_nvcc(option: str, flag: str) -> tuple[str, str]:
    """A flag for nvcc's host compiler or linker, quoted, since nvcc passes it through a shell."""
    plain = re.fullmatch(r"[\w@%+=:./-]+", flag)
    return option, flag if plain else f'"{flag}"'


def _by_clang(target: Target, toolkit: ClangToolkit, architectures: Sequence[str]) -> list[Step]:
    flags = host_flags(target.request, "-O3")
    host = [*target.compiler.command, "-std=c++17", *flags]
    # clang warns of every `#pragma unroll` that it cannot follow.
    quiet = "-Wno-pass-failed"
    device = [toolkit.clang, "-std=c++17", *toolkit.flags(architectures), *flags, quiet]
    for source in kernel_sources(target.request.csrc, "cuda"):
        target.compile(source, device if source.suffix == ".cu" else host)
    made = toolkit.actual(architectures)
    _record(target, toolkit, made, f"{toolkit.name}, CUDA {toolkit.version_text}")
    # The wheels hold no static runtime; a torch of this CUDA major has loaded the shared one.
    link = [*target.compiler.command, *link_flags(target.request.env)]
    return target.link(link, [f"-L{toolkit.folder / 'lib64'}", "-lcudart"])


# The OpenMP symbols that ATen's parallel_for calls; any other missing symbol stays an error.
_OF_OPENMP = ("GOMP_parallel", "omp_get_num_threads", "omp_get_thread_num")


def cxx_standard(torch: tuple[int, int]) -> int:
    """The oldest C++ standard that the headers of this torch accept."""
    return 20 if torch >= (2, 14) else 17


def _glue(request: BuildRequest, compiler: HostCompiler, name: str) -> list[Step]:
    torch, glue = request.torch, GlueName.parse(name)
    if torch is None:
        raise BuildError(
            f"the glue {name} needs a torch to compile against, got none; install torch, or pass "
            "the one to build for"
        )
    if not glue.serves(torch):
        more = "or newer" if glue.lane == "stable" else f"with C++ ABI {glue.cxx11_abi}"
        raise BuildError(
            f"the glue {glue} must be compiled against torch {dotted(glue.torch)} {more}, got "
            f"torch {torch.version} with C++ ABI {torch.cxx11_abi} in {torch.root}; point to a "
            "torch that fits"
        )
    if glue.lane == "stable":
        # The newest torch whose interface the object may use, in the encoding of torch's headers.
        door = [f"-DTORCH_TARGET_VERSION={(glue.torch[0] << 56) | (glue.torch[1] << 48):#018x}"]
        libraries = ["-ldl"]  # dlopen is in libdl before glibc 2.34
    else:
        # ATen's parallel_for is OpenMP in a header: serial without the flag. Its symbols resolve to
        # libtorch_cpu's own runtime, whatever that file is called: some wheels for Arm rename it,
        # and linking libgomp would load a second one. clang's code calls another runtime.
        door = ["-DAT_PER_OPERATOR_HEADERS", "-fopenmp"]
        left = [f"-Wl,--ignore-unresolved-symbol={name}" for name in _OF_OPENMP]
        libraries = ["-lc10", *(["-fopenmp"] if "clang" in compiler.name else left)]
    target = Target(request, file_name(glue), compiler)
    standard = cxx_standard(torch.version_tuple)
    # Messages in torch's headers hold their paths; the binary must not name the folder of torch.
    sites = dict.fromkeys((torch.root.parent, torch.root.resolve().parent))
    base = [
        *compiler.command,
        f"-std=c++{standard}",
        *host_flags(request, "-O2"),
        f"-D_GLIBCXX_USE_CXX11_ABI={1 if torch.cxx11_abi is None else torch.cxx11_abi}",
        *(f"-ffile-prefix-map={site}{os.sep}=" for site in sites),
        *("-isystem", str(torch.include_dir)),
        *("-isystem", str(torch.include_dir / "torch" / "csrc" / "api" / "include")),
        *door,
    ]
    for source in glue_sources(request.csrc, glue.lane):
        target.compile(source, base)
    target.record(
        base,
        lane=glue.lane,
        torch_target=dotted(glue.torch),
        torch_built=torch.version,
        cxx11_abi=torch.cxx11_abi,
        compiler=str(compiler),
        cxx_standard=standard,
    )
    from_torch = [
        f"-L{torch.lib_dir}",
        *("-Xlinker", "-rpath-link", "-Xlinker", str(torch.lib_dir)),  # -Wl would split at commas
        # libtorch must stay in DT_NEEDED although no symbol of it is used: in a CUDA build it loads
        # libtorch_cuda, which resolves the weak references to CUDA functions.
        *("-Wl,--push-state,--no-as-needed", "-ltorch", "-ltorch_cpu", "-Wl,--pop-state"),
    ]
    return target.link([*compiler.command, *link_flags(request.env)], [*from_torch, *libraries])
