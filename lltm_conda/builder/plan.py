"""What to compile and link for a request. Pure but for reading versions; runs no compiler."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..compat.records import GlueName, KernelsName, TorchInstall, file_name
from .cuda_toolkit import (
    DEFAULT_ARCHITECTURES,
    CudaToolkit,
    architecture_flags,
    find_cuda_toolkit,
    parse_architectures,
)
from .errors import BuildError
from .host_compiler import HostCompiler, find_host_compiler
from .record import make_record, record_source
from .sources import source_root

__all__ = ["BuildRequest", "Step", "debug_wanted", "door_flags", "plan"]


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
    """

    out_dir: Path
    glue: str | None = None
    torch: TorchInstall | None = None
    kernels: tuple[str, ...] = ("cpu",)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cuda: CudaToolkit | None = None
    architectures: str | None = None


@dataclass(frozen=True)
class Step:
    """One command. `inputs` are files it reads (headers are found by the depfile)."""

    name: str
    inputs: tuple[Path, ...]
    output: Path
    command: tuple[str, ...]
    depfile: Path | None = None
    # Text to be written to inputs[0] beforehand, when that file is generated.
    generated: str | None = None


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
            steps += _cuda_kernels(request, compiler, name)
    if request.glue is not None:
        steps += _glue(request, compiler, request.glue)
    return steps


class _Target:
    """Collects the steps of one shared object."""

    def __init__(self, request: BuildRequest, file: str, compiler: HostCompiler):
        self.output = request.out_dir / file
        self.objects_dir = request.out_dir / "objects" / file.removesuffix(".so")
        self.env = request.env
        self.compiler = compiler
        self.steps: list[Step] = []
        self._objects: list[Path] = []

    def compile(self, source: Path, command: list[str], generated: str | None = None) -> None:
        stem = source.name.replace(".", "_")
        output = self.objects_dir / f"{source.parent.name}_{stem}.o"
        depfile = output.with_suffix(".d")
        flags = ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
        self.steps.append(
            Step(
                f"compile {source.name} for {self.output.name}",
                (source,),
                output,
                (*command, *flags),
                depfile,
                generated,
            )
        )
        self._objects.append(output)

    def record(self, command: list[str], **facts: object) -> None:
        kind, _, name = self.output.stem.partition("-")
        text = record_source(make_record(kind, name, self.env, **facts))
        self.compile(self.objects_dir / "record.cpp", command, generated=text)

    def link(self, command: list[str], libraries: list[str]) -> list[Step]:
        objects = tuple(self._objects)
        line = (*command, "-o", str(self.output), *map(str, objects), *libraries)
        self.steps.append(Step(f"link {self.output.name}", objects, self.output, line))
        return self.steps


_LINK = ["-shared", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--build-id=sha1"]


def debug_wanted(env: Mapping[str, str]) -> bool:
    """Whether `DEBUG` asks for objects without optimisation, with debugging symbols."""
    return env.get("DEBUG", "0").strip().lower() not in ("", "0", "off", "no", "false")


def _host_flags(env: Mapping[str, str], optimisation: str) -> list[str]:
    level = ["-O0", "-g"] if debug_wanted(env) else [optimisation, "-DNDEBUG"]
    root = source_root()
    return [
        *shlex.split(env.get("CXXFLAGS", "")),
        *level,
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        "-Wall",
        f"-ffile-prefix-map={root.parent}{os.sep}=",
    ]


def _cpu_kernels(request: BuildRequest, compiler: HostCompiler) -> list[Step]:
    target = _Target(request, file_name(KernelsName()), compiler)
    base = [*compiler.command, "-std=c++17", *_host_flags(request.env, "-O3")]
    for source in sorted((source_root() / "kernels" / "cpu").glob("*.cpp")):
        target.compile(source, base)
    target.record(
        base, device="cpu", cuda=None, cuda_archs=[], compiler=str(compiler), cxx_standard=17
    )
    return target.link([*compiler.command, *_LINK, *_linker_flags(request.env)], [])


def _linker_flags(env: Mapping[str, str]) -> list[str]:
    return shlex.split(env.get("LDFLAGS", ""))


def _cuda_kernels(request: BuildRequest, compiler: HostCompiler, name: str) -> list[Step]:
    toolkit = request.cuda or find_cuda_toolkit(request.env)
    if toolkit is None:
        raise BuildError(
            f"the {name} kernels need nvcc, and there is none: looked for CUDA_HOME, nvcc on PATH, "
            "/usr/local/cuda and PyPI's cuda-toolkit. Install one (pip install "
            '"cuda-toolkit[nvcc,cudart,cccl]==13.0.*"), set CUDA_HOME, or build without FORCE_CUDA'
        )
    wanted = KernelsName.parse(name).cuda_major
    if toolkit.version[0] != wanted:
        raise BuildError(
            f"the {name} kernels need an nvcc {wanted}.x, got {toolkit.version_text} "
            f"({toolkit.nvcc}); set CUDA_HOME to a CUDA {wanted} toolkit"
        )
    listed = request.env.get("TORCH_CUDA_ARCH_LIST") or request.architectures
    architectures = parse_architectures(
        listed or DEFAULT_ARCHITECTURES[toolkit.version[0]], toolkit.architectures()
    )
    target = _Target(request, file_name(KernelsName.parse(name)), compiler)
    host = [flag for flag in _host_flags(request.env, "-O3") if flag not in ("-O3", "-O0", "-g")]
    level = ["-O0", "-g", "-lineinfo"] if debug_wanted(request.env) else ["-O3"]
    # nvcc takes one command as its host compiler: a launcher before it stays out.
    ccbin = request.env.get("CUDAHOSTCXX") or compiler.command[-1]
    base = [
        toolkit.nvcc,
        "-std=c++17",
        *level,
        *("-ccbin", ccbin),
        *architecture_flags(architectures),
        *(part for flag in host for part in _through_nvcc("-Xcompiler", flag)),
    ]
    for source in sorted((source_root() / "kernels" / "cuda").iterdir()):
        if source.suffix in (".cu", ".cpp"):
            target.compile(source, base)
    target.record(
        [*compiler.command, "-std=c++17", *_host_flags(request.env, "-O2")],
        device="cuda",
        cuda=toolkit.version_text,
        cuda_archs=architectures,
        compiler=f"nvcc {toolkit.version_text}, {compiler}",
        cxx_standard=17,
    )
    link = [toolkit.nvcc, "-cudart", "static", "-ccbin", ccbin, "-shared"]
    # nvcc links device code as well, and would add its default architecture to those asked for.
    link += architecture_flags(architectures)
    for flag in [*_LINK[1:], *_linker_flags(request.env)]:
        # nvcc splits what follows -Xcompiler at commas, so linker flags go to the linker directly.
        parts = flag.removeprefix("-Wl,").split(",") if flag.startswith("-Wl,") else [flag]
        option = "-Xlinker" if flag.startswith("-Wl,") else "-Xcompiler"
        link += [part for word in parts for part in _through_nvcc(option, word)]
    return target.link(link, [f"-L{folder}" for folder in toolkit.library_dirs])


def _through_nvcc(option: str, flag: str) -> tuple[str, str]:
    """A flag for the compiler or linker behind nvcc, which puts it into a shell's command line."""
    plain = re.fullmatch(r"[\w@%+=:./-]+", flag)
    return option, flag if plain else f'"{flag}"'


def door_flags(glue: GlueName) -> list[str]:
    """What the sources of a door are compiled with, beside torch's headers."""
    if glue.lane == "stable":
        # The newest interface the object may use, as the headers encode a version.
        version = (glue.torch[0] << 56) | (glue.torch[1] << 48)
        return [f"-DTORCH_TARGET_VERSION={version:#018x}"]
    # ATen's parallel_for is OpenMP in a header: serial without the flag.
    return ["-DAT_PER_OPERATOR_HEADERS", "-fopenmp"]


def _glue(request: BuildRequest, compiler: HostCompiler, name: str) -> list[Step]:
    torch = request.torch
    if torch is None:
        raise BuildError(
            f"the glue {name} needs a torch to compile against, got none; install torch, or pass "
            "the one to build for"
        )
    parsed = GlueName.parse(name)
    target = _Target(request, file_name(parsed), compiler)
    root = source_root()
    standard = 20 if torch.version_tuple >= (2, 14) else 17
    door = root / ("torch_stable" if parsed.lane == "stable" else "torch_aten")
    base = [
        *compiler.command,
        f"-std=c++{standard}",
        *_host_flags(request.env, "-O2"),
        f"-D_GLIBCXX_USE_CXX11_ABI={1 if torch.cxx11_abi is None else torch.cxx11_abi}",
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
    link = [*compiler.command, *_LINK, *_linker_flags(request.env)]
    paths = [f"-L{torch.lib_dir}", f"-Wl,-rpath-link,{torch.lib_dir}"]
    return target.link(link, [*paths, *libraries])
