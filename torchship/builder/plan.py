"""Tells which binaries fit a torch, and plans the commands that compile and link them."""

import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from ..doctor.project import Project
from ..doctor.records import RECORD_SECTION, GlueName, KernelsName, TorchInstall, dotted, file_name
from .cuda_toolkit import (
    NO_NVCC,
    ClangToolkit,
    CudaToolkit,
    default_architectures,
    find_cuda_toolkit,
    parse_architectures,
)
from .programs import BuildError, HostCompiler, Log, find_host_compiler, flag, words
from .sources import git_commit, glue_sources, kernel_abi, kernel_sources, source_date, source_root

# The first torch whose stable ABI has all that the op needs; one glue serves it and later torches.
FIRST_STABLE = (2, 10)
OLDEST = (2, 4)

_LINK = ("-shared", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--build-id=sha1")
_CUDA_NAMES = {"aarch64": "sbsa"}
# The OpenMP symbols that ATen's parallel_for calls. The linker may leave only these undefined.
_OF_OPENMP = ("GOMP_parallel", "omp_get_num_threads", "omp_get_thread_num")


@dataclass(frozen=True)
class BuildRequest:
    """The binaries to build, the sources, and the tools."""

    out_dir: Path  #: for the binaries (`glue-*.so`, `kernels-*.so`)
    project: Project  #: whose sources to compile
    glue: str | None = None  #: its name (`stable210`, `aten29-abi1`, ...); None for kernels alone
    torch: TorchInstall | None = None  #: whose headers and libraries the glue is compiled against
    kernels: tuple[str, ...] = ("cpu",)  #: their names (`cpu`, `cuda12`, `cuda13`)
    #: CXX, CXXFLAGS, LDFLAGS, CUDA_HOME, CUDAHOSTCXX, TORCH_CUDA_ARCH_LIST and DEBUG have their
    #: usual meanings.
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cuda: CudaToolkit | ClangToolkit | None = None  #: None: what `find_cuda_toolkit` finds
    architectures: str | None = None  #: the default for TORCH_CUDA_ARCH_LIST, in its syntax
    #: A compiler cache's command, put before all compilations but those by a CXX of several words.
    launcher: tuple[str, ...] = ()

    @property
    def csrc(self) -> Path:
        return source_root(self.project.folder)

    @cached_property
    def compiler(self) -> HostCompiler:
        return find_host_compiler(self.env)


@dataclass(frozen=True)
class Step:
    """One command, which reads `inputs` and writes `output`."""

    name: str
    inputs: tuple[Path, ...]
    output: Path
    command: tuple[str, ...]
    depfile: Path | None = None  #: the compiler writes the names of the headers that it reads there
    generated: str | None = None  #: the text to write into inputs[0] before the command runs


@dataclass(frozen=True)
class _Recipe:
    """How to make one shared object."""

    sources: Mapping[Path, list[str]]  #: the start of each source's command
    libraries: list[str]  #: the linker's options for libraries
    facts: Mapping[str, object]  #: for the build record
    link: list[str] | None = None  #: the start of the link command; None: the host compiler's


def glue_for(torch: TorchInstall, project: Project) -> str:
    """The name of the glue that fits `torch`: `stable210`, or `aten29-abi1` and the like."""
    if torch.version_tuple >= FIRST_STABLE:
        return str(GlueName("stable", FIRST_STABLE))
    if torch.version_tuple < OLDEST:
        raise BuildError(
            f"{project.distribution} needs torch 2.4 or newer, got {torch.version} in "
            f"{torch.root}; upgrade torch: pip install --upgrade torch"
        )
    if torch.cxx11_abi is None:
        raise BuildError(
            f"the C++ ABI of torch {torch.version} in {torch.root} cannot be told from its libc10; "
            "reinstall torch: pip install --force-reinstall torch"
        )
    return str(GlueName("aten", torch.version_tuple, torch.cxx11_abi))


def fitting_request(
    project: Project,
    torch: TorchInstall,
    out_dir: Path,
    env: Mapping[str, str] | None = None,
    log: Log = print,
) -> BuildRequest:
    """The request for the one variant that fits `torch` and this machine's compilers.

    The variant has CUDA kernels if the project has them, torch is a CUDA build, and there is an
    nvcc that is not too old and whose CUDA major is not newer than torch's. FORCE_CUDA=1 demands
    CUDA kernels, even by a newer nvcc or for a torch without CUDA; FORCE_CUDA=0 leaves them out.
    """
    env = dict(os.environ) if env is None else env
    glue = glue_for(torch, project)
    toolkit = _toolkit(torch, env, log) if "cuda" in project.kernels else None
    kernels: tuple[str, ...] = ("cpu",) if "cpu" in project.kernels else ()
    if toolkit is not None:
        kernels += (f"cuda{toolkit.version[0]}",)
    return BuildRequest(out_dir, project, glue, torch, kernels, env, toolkit)


def _toolkit(torch: TorchInstall, env: Mapping[str, str], log: Log) -> CudaToolkit | None:
    forced = flag(env, "FORCE_CUDA")
    if forced is False or (forced is None and torch.cuda is None):
        return None  # FORCE_CUDA=0, or a torch without CUDA
    toolkit = find_cuda_toolkit(env, [torch.root.parent], major=torch.cuda_major)
    try:
        if toolkit is None:
            who = "FORCE_CUDA=1" if forced else f"torch {torch.version} is a CUDA build and"
            raise BuildError(
                f"{who} asks for CUDA kernels, but no nvcc was found: {NO_NVCC}, or set "
                "FORCE_CUDA=0"
            )
        if not env.get("TORCH_CUDA_ARCH_LIST"):
            default_architectures(toolkit.version, toolkit.architectures())
        if torch.cuda_major is not None and toolkit.version[0] > torch.cuda_major:
            text = (
                f"nvcc {toolkit.version_text} is newer than the CUDA {torch.cuda} of torch "
                f"{torch.version}: its kernels need a driver for CUDA {toolkit.version[0]}, which "
                "may be missing where that torch runs"
            )
            if not forced:
                raise BuildError(
                    f"{text}; set CUDA_HOME to a CUDA {torch.cuda_major} toolkit, or FORCE_CUDA=1 "
                    "if the driver is new enough"
                )
            log(f"{text}; building the kernels since FORCE_CUDA=1")
    except BuildError as error:
        if forced:
            raise
        log(f"{error}. Building for the CPU only")
        return None
    return toolkit


def plan(request: BuildRequest) -> list[Step]:
    """All steps of a request, in an order in which they can run. Raises BuildError if a compiler,
    torch, CUDA toolkit or source is missing or does not fit."""
    # ninja runs the steps in another folder, so paths must be absolute.
    request = replace(request, out_dir=request.out_dir.absolute())
    recipes: dict[str, _Recipe] = {}
    for name in request.kernels:
        if name.rstrip("0123456789") not in request.project.kernels:
            owner = request.project.distribution
            raise BuildError(f"{owner} has no {name} kernels; leave them out of the request")
        kernels = KernelsName.parse(name)
        make = _cpu_kernels if kernels.cuda_major is None else _cuda_kernels
        recipes[file_name(kernels)] = make(request, kernels)
    if request.glue is not None:
        glue = GlueName.parse(request.glue)
        recipes[file_name(glue)] = _glue(request, glue)
    return [step for file, recipe in recipes.items() for step in _steps(request, file, recipe)]


def _steps(request: BuildRequest, file: str, recipe: _Recipe) -> list[Step]:
    """The steps that compile every source and the build record, and the step that links."""
    compiler = request.compiler
    folder = request.out_dir / "objects" / file.removesuffix(".so")
    record = folder / "record.cpp"
    plain = [*compiler.command, "-std=c++17", *_host_flags(request, "-O2")]
    steps = []
    for source, command in {**recipe.sources, record: plain}.items():
        output = folder / f"{source.parent.name}_{source.name.replace('.', '_')}.o"
        depfile = output.with_suffix(".d")
        flags = ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(output)]
        # A CXX of several words may already start with a launcher.
        several = len(compiler.command) > 1 and command[0] == compiler.command[0]
        line = (*(() if several else request.launcher), *command, *flags)
        text = _record(request, file, recipe.facts) if source == record else None
        name = f"compile {source.name} for {file}"
        steps.append(Step(name, (source,), output, line, depfile, text))
    objects, output = tuple(step.output for step in steps), request.out_dir / file
    link = recipe.link or [*compiler.command, *_link_flags(request.env)]
    line = (*link, "-o", str(output), *map(str, objects), *recipe.libraries)
    return [*steps, Step(f"link {file}", objects, output, line)]


def _record(request: BuildRequest, file: str, facts: Mapping[str, object]) -> str:
    """The C++ source of the build record."""
    kind, _, name = file.removesuffix(".so").partition("-")
    project, env, compiler = request.project, request.env, request.compiler
    record = {
        "schema": 1,
        "kind": kind,
        "name": name,
        "package": project.distribution,
        "version": project.version,
        "kernel_abi": kernel_abi(request.csrc),
        "platform": f"{sys.platform}-{compiler.machine or platform.machine()}",
        "git_commit": git_commit(project, env),
        "source_date": source_date(project, env),
        "compiler": str(compiler),
        "cxx_standard": 17,
        **facts,
    }
    return (
        "// Generated by the builder.\n"
        f'__attribute__((section("{RECORD_SECTION}"), used))\n'
        f"static const char record[] = {json.dumps(json.dumps(record, sort_keys=True))};\n"
        'extern "C" __attribute__((visibility("default")))\n'
        f"const char* {project.symbol('build_record')}(void) {{ return record; }}\n"
    )


def _host_flags(request: BuildRequest, optimisation: str) -> list[str]:
    """The flags of the host compiler, and of clang for CUDA, CXXFLAGS first."""
    level = ["-O0", "-g"] if flag(request.env, "DEBUG") else [optimisation, "-DNDEBUG"]
    return [
        *words(request.env, "CXXFLAGS"),
        *level,
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        "-Wall",
        # The binary must not depend on the folder of the sources.
        f"-ffile-prefix-map={request.csrc.parent}{os.sep}=",
    ]


def _link_flags(env: Mapping[str, str]) -> list[str]:
    """The linker flags of every shared object, LDFLAGS included."""
    # With --gc-sections from LDFLAGS, the linker would remove records to which no code refers.
    return [*_LINK, *words(env, "LDFLAGS"), "-Wl,--no-gc-sections"]


def _cpu_kernels(request: BuildRequest, _: KernelsName) -> _Recipe:
    base = [*request.compiler.command, "-std=c++17", *_host_flags(request, "-O3")]
    sources = dict.fromkeys(kernel_sources(request.csrc, "cpu"), base)
    return _Recipe(sources, [], {"device": "cpu", "cuda": None, "cuda_archs": []})


def _cuda_kernels(request: BuildRequest, kernels: KernelsName) -> _Recipe:
    compiler = request.compiler
    toolkit = request.cuda or find_cuda_toolkit(request.env, major=kernels.cuda_major)
    if toolkit is None:
        raise BuildError(
            f"the {kernels} kernels need nvcc, but there is none: {NO_NVCC}, or unset FORCE_CUDA"
        )
    if toolkit.version[0] != kernels.cuda_major:
        place = toolkit.nvcc if isinstance(toolkit, CudaToolkit) else toolkit.folder
        raise BuildError(
            f"the {kernels} kernels need an nvcc {kernels.cuda_major}.x, got "
            f"{toolkit.version_text} ({place}); set CUDA_HOME to a CUDA "
            f"{kernels.cuda_major} toolkit"
        )
    listed = request.env.get("TORCH_CUDA_ARCH_LIST") or request.architectures
    compiled = toolkit.architectures()
    listed = listed or default_architectures(toolkit.version, compiled)
    architectures = parse_architectures(listed, compiled)
    if isinstance(toolkit, CudaToolkit):
        recipe, by = _by_nvcc(request, toolkit, architectures), "nvcc"
    else:
        recipe, by = _by_clang(request, toolkit, architectures), f"{toolkit.name}, CUDA"
        architectures = toolkit.actual(architectures)
    by = f"{by} {toolkit.version_text}, {compiler}"
    facts = {"cuda": toolkit.version_text, "cuda_archs": architectures, "compiler": by}
    return replace(recipe, facts={"device": "cuda", **facts})


def _by_nvcc(request: BuildRequest, toolkit: CudaToolkit, architectures: list[str]) -> _Recipe:
    env, compiler = request.env, request.compiler
    host = [flag for flag in _host_flags(request, "-O3") if flag not in ("-O3", "-O0", "-g")]
    level = ["-O0", "-g", "-lineinfo"] if flag(env, "DEBUG") else ["-O3"]
    # nvcc's -ccbin takes one program. In CXX, a launcher may stand before it and options after it.
    programs = list(takewhile(lambda word: not word.startswith("-"), compiler.command))
    options = [f"-Xcompiler={option}" for option in compiler.command[len(programs) :]]
    other = env.get("CUDAHOSTCXX")
    ccbin = ["-ccbin", other] if other else ["-ccbin", programs[-1], *options]
    here = platform.machine()
    if compiler.machine not in ("", here):
        # With a cross compiler, nvcc would look for a toolkit of the compiler's platform, which is
        # not here. This machine's toolkit has the same headers, so make nvcc use this toolkit.
        ccbin += ["--target-directory", f"{_CUDA_NAMES.get(here, here)}-linux"]
    codes = [f"arch=compute_{name.split('_')[1]},code={name}" for name in architectures]
    base = [
        toolkit.nvcc,
        "-std=c++17",
        *level,
        *ccbin,
        *(word for code in codes for word in ("-gencode", code)),
        # GPU code is three quarters of a wheel, so compress it from CUDA 13 on. Every driver for
        # CUDA 13 reads this compression, but drivers for CUDA 12.0 to 12.3 do not.
        *(["--compress-mode=size"] if toolkit.version >= (13, 0) else []),
        *(part for flag in host for part in _through_nvcc("-Xcompiler", flag)),
    ]
    # No kernel calls a device function of another file, so the build needs no nvlink, which would
    # store the folders of -L in the binary.
    link = [toolkit.nvcc, "-cudart", "static", *ccbin, "-shared", "--no-device-link"]
    # Names of local symbols would make the binary depend on the folder of the sources.
    link += ["-Xlinker", "--strip-all"]
    for option in _link_flags(env)[1:]:  # `link` already has -shared
        # nvcc splits the value of -Xcompiler at commas, so pass A and B of -Wl,A,B by -Xlinker.
        if option.startswith("-Wl,"):
            for word in option.removeprefix("-Wl,").split(","):
                link += _through_nvcc("-Xlinker", word)
        else:
            link += _through_nvcc("-Xcompiler", option)
    sources = dict.fromkeys(kernel_sources(request.csrc, "cuda"), base)
    return _Recipe(sources, [f"-L{folder}" for folder in toolkit.library_dirs], {}, link)


def _through_nvcc(option: str, flag: str) -> tuple[str, str]:
    """nvcc's `option` with a flag for the host compiler or linker, quoted for nvcc's shell."""
    plain = re.fullmatch(r"[\w@%+=:./-]+", flag)
    return option, flag if plain else f'"{flag}"'


def _by_clang(request: BuildRequest, toolkit: ClangToolkit, architectures: list[str]) -> _Recipe:
    flags = _host_flags(request, "-O3")
    host = [*request.compiler.command, "-std=c++17", *flags]
    # clang warns of every `#pragma unroll` that it does not apply.
    quiet = "-Wno-pass-failed"
    device = [toolkit.clang, "-std=c++17", *toolkit.flags(architectures), *flags, quiet]
    sources = kernel_sources(request.csrc, "cuda")
    return _Recipe(
        {source: device if source.suffix == ".cu" else host for source in sources},
        # NVIDIA's wheels of CUDA 12 hold no static runtime, so link the shared one. A torch of this
        # CUDA major has loaded it before the kernels are loaded.
        [f"-L{toolkit.folder / 'lib64'}", "-lcudart"],
        {},
    )


def cxx_standard(torch: tuple[int, int]) -> int:
    """The oldest C++ standard that the headers of this torch accept."""
    return 20 if torch >= (2, 14) else 17


def _glue(request: BuildRequest, glue: GlueName) -> _Recipe:
    torch, compiler = request.torch, request.compiler
    if torch is None:
        raise BuildError(
            f"the glue {glue} needs a torch to compile against, got none; install torch, or pass "
            "the one to build for"
        )
    if not glue.serves(torch):
        more = "or newer" if glue.lane == "stable" else f"with C++ ABI {glue.cxx11_abi}"
        raise BuildError(
            f"the glue {glue} must be compiled against torch {dotted(glue.torch)} {more}, got "
            f"torch {torch.version} with C++ ABI {torch.cxx11_abi} in {torch.root}; pass a "
            "torch that fits"
        )
    if glue.lane == "stable":
        # The newest torch whose functions the object may call, in the encoding of torch's headers.
        door = [f"-DTORCH_TARGET_VERSION={(glue.torch[0] << 56) | (glue.torch[1] << 48):#018x}"]
        libraries = ["-ldl"]  # dlopen is in libdl before glibc 2.34
    else:
        # Without -fopenmp, ATen's parallel_for (in a header) is serial. Code from g++ finds libgomp
        # in the process, since torch has loaded it. Linking libgomp could load a second copy: some
        # of torch's wheels for Arm hold a renamed libgomp. Code from clang links clang's libomp.
        door = ["-DAT_PER_OPERATOR_HEADERS", "-fopenmp"]
        left = [f"-Wl,--ignore-unresolved-symbol={name}" for name in _OF_OPENMP]
        libraries = ["-lc10", *(["-fopenmp"] if "clang" in compiler.name else left)]
    standard = cxx_standard(torch.version_tuple)
    # Error messages in torch's headers contain __FILE__; the binary must not name torch's folder.
    sites = dict.fromkeys((torch.root.parent, torch.root.resolve().parent))
    base = [
        *compiler.command,
        f"-std=c++{standard}",
        *_host_flags(request, "-O2"),
        f"-D_GLIBCXX_USE_CXX11_ABI={1 if torch.cxx11_abi is None else torch.cxx11_abi}",
        *(f"-ffile-prefix-map={site}{os.sep}=" for site in sites),
        *("-isystem", str(torch.include_dir)),
        *("-isystem", str(torch.include_dir / "torch" / "csrc" / "api" / "include")),
        *door,
    ]
    facts = {"torch_target": dotted(glue.torch), "torch_built": torch.version}
    from_torch = [
        f"-L{torch.lib_dir}",
        *("-Xlinker", "-rpath-link", "-Xlinker", str(torch.lib_dir)),  # -Wl splits paths at commas
        # libtorch must stay in DT_NEEDED although the glue uses no symbol of it: in a CUDA build,
        # libtorch loads libtorch_cuda, which resolves the weak references to CUDA functions.
        *("-Wl,--push-state,--no-as-needed", "-ltorch", "-ltorch_cpu", "-Wl,--pop-state"),
    ]
    return _Recipe(
        dict.fromkeys(glue_sources(request.csrc, glue.lane), base),
        [*from_torch, *libraries],
        {**facts, "lane": glue.lane, "cxx11_abi": torch.cxx11_abi, "cxx_standard": standard},
    )
