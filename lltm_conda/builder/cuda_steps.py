"""The steps that make a CUDA kernel object: by nvcc, or by clang where there is no nvcc."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..compat.records import KernelsName, file_name
from .clang_cuda import ClangToolkit
from .cuda_toolkit import (
    NO_NVCC,
    CudaToolkit,
    Toolkit,
    architecture_flags,
    default_architectures,
    find_cuda_toolkit,
    parse_architectures,
)
from .errors import BuildError
from .host_compiler import HostCompiler
from .request import BuildRequest
from .sources import source_root
from .targets import Step, Target, debug_wanted, host_flags, link_flags


def cuda_kernels(request: BuildRequest, compiler: HostCompiler, name: str) -> list[Step]:
    """The steps of `kernels-<name>.so`.

    Raises:
        BuildError: there is no toolkit, or not one of that CUDA major.
    """
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
    architectures = parse_architectures(
        listed or default_architectures(toolkit), toolkit.architectures()
    )
    target = Target(request, file_name(kernels), compiler)
    if isinstance(toolkit, CudaToolkit):
        return _by_nvcc(target, toolkit, architectures)
    assert isinstance(toolkit, ClangToolkit)
    return _by_clang(target, toolkit, architectures)


def _sources() -> list[Path]:
    folder = source_root() / "kernels" / "cuda"
    return sorted(path for path in folder.iterdir() if path.suffix in (".cu", ".cpp"))


def _record(target: Target, toolkit: Toolkit, architectures: Sequence[str], compiler: str) -> None:
    target.record(
        [*target.compiler.command, "-std=c++17", *host_flags(target.env, "-O2")],
        device="cuda",
        cuda=toolkit.version_text,
        cuda_archs=list(architectures),
        compiler=f"{compiler}, {target.compiler}",
        cxx_standard=17,
    )


def _by_nvcc(target: Target, toolkit: CudaToolkit, architectures: Sequence[str]) -> list[Step]:
    env = target.env
    host = [flag for flag in host_flags(env, "-O3") if flag not in ("-O3", "-O0", "-g")]
    level = ["-O0", "-g", "-lineinfo"] if debug_wanted(env) else ["-O3"]
    # nvcc takes one command as its host compiler, so a launcher before it is left out.
    ccbin = env.get("CUDAHOSTCXX") or target.compiler.command[-1]
    base = [
        toolkit.nvcc,
        "-std=c++17",
        *level,
        *("-ccbin", ccbin),
        *architecture_flags(architectures),
        # Machine code is three quarters of a wheel. Every driver that runs CUDA 13 unpacks this
        # compression; drivers of CUDA 12 before 12.4 would not.
        *(["--compress-mode=size"] if toolkit.version >= (13, 0) else []),
        *(part for flag in host for part in _through_nvcc("-Xcompiler", flag)),
    ]
    for source in _sources():
        target.compile(source, base)
    _record(target, toolkit, architectures, f"nvcc {toolkit.version_text}")
    link = [toolkit.nvcc, "-cudart", "static", "-ccbin", ccbin, "-shared"]
    # nvcc links device code as well, and would add its default architecture to those asked for.
    link += architecture_flags(architectures)
    for option in link_flags(env)[1:]:  # nvcc has its own -shared, above
        # nvcc splits the value of -Xcompiler at commas, so linker flags go to the linker directly.
        if option.startswith("-Wl,"):
            for word in option.removeprefix("-Wl,").split(","):
                link += _through_nvcc("-Xlinker", word)
        else:
            link += _through_nvcc("-Xcompiler", option)
    return target.link(link, [f"-L{folder}" for folder in toolkit.library_dirs])


def _through_nvcc(option: str, flag: str) -> tuple[str, str]:
    """A flag for nvcc's host compiler or linker: nvcc writes it into a shell's command line."""
    plain = re.fullmatch(r"[\w@%+=:./-]+", flag)
    return option, flag if plain else f'"{flag}"'


def _by_clang(target: Target, toolkit: ClangToolkit, architectures: Sequence[str]) -> list[Step]:
    flags = host_flags(target.env, "-O3")
    host = [*target.compiler.command, "-std=c++17", *flags]
    # clang warns of every `#pragma unroll` that it cannot follow.
    quiet = "-Wno-pass-failed"
    device = [toolkit.clang, "-std=c++17", *toolkit.flags(architectures), *flags, quiet]
    for source in _sources():
        target.compile(source, device if source.suffix == ".cu" else host)
    made = toolkit.actual(architectures)
    _record(target, toolkit, made, f"{toolkit.name}, CUDA {toolkit.version_text}")
    # The wheels hold no static runtime; a torch of this CUDA major has the shared one loaded.
    link = [*target.compiler.command, *link_flags(target.env)]
    return target.link(link, [f"-L{toolkit.folder / 'lib64'}", "-lcudart"])
