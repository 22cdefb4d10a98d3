"""How each kind of binary is compiled and linked: kernels for the CPU, kernels for CUDA, glue."""

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from ..judge.records import KernelsName
from .cuda_flags import clang_flags
from .cuda_libraries import cuda_link_inputs
from .cuda_toolkit import (
    NO_NVCC,
    ClangToolkit,
    CudaToolkit,
    default_architectures,
    find_cuda_toolkit,
    parse_architectures,
)
from .options import ObjectOptions, project_file
from .programs import BuildError, read_flag, split_variable
from .request import BuildRequest
from .sources import (
    CUDA_SUFFIXES,
    HOST_SUFFIXES,
    INCLUDE,
    include_dirs,
    sources_below,
    sources_of,
)

_LINK = ("-shared", "-Wl,-z,defs", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--build-id=sha1")
# Some compilers link libstdc++ statically, by themselves or by -static-libstdc++. The process would
# join a part of that copy's symbols (the STB_GNU_UNIQUE ones, among them the ids of locale facets)
# to those of torch's libstdc++, and the first number written to a stream would crash.
_HIDE_LIBSTDCXX = "-Wl,--exclude-libs,libstdc++.a"
# NVIDIA's names for the platforms whose names differ.
_CUDA_NAMES = {"aarch64": "sbsa"}
#: The C++ standard of kernels, unless the matrix names another.
KERNEL_STANDARD = 17


@dataclass(frozen=True)
class Recipe:
    """How to make one shared object."""

    sources: Mapping[Path, list[str]]  #: the start of each source's command
    libraries: list[str]  #: the linker's options for libraries
    facts: Mapping[str, object]  #: for the build record
    link: list[str] | None = None  #: the start of the link command; None: the host compiler's


def cxx_standard(lane: str, torch: tuple[int, int]) -> int:
    """The C++ standard of a glue that is compiled with the headers of this torch.

    ATen's headers refuse C++17 from torch 2.14 on, and torch compiles extensions as C++20 before
    that. The headers of the stable ABI take C++17, and with it older compilers.
    """
    return 20 if lane == "aten" and torch >= (2, 13) else 17


def host_flags(request: BuildRequest, optimisation: str) -> list[str]:
    """The flags of the host compiler, and of clang for CUDA, CXXFLAGS first."""
    is_debug = read_flag(request.env, "DEBUG")
    level = ["-O0", "-g"] if is_debug else [optimisation, "-DNDEBUG"]
    return [
        *split_variable(request.env, "CXXFLAGS"),
        *level,
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        "-Wall",
        # The binary must not depend on the folder of the sources, nor on that of torchship.
        *(f"-ffile-prefix-map={folder}{os.sep}=" for folder in _source_folders(request)),
    ]


def _source_folders(request: BuildRequest) -> Iterable[Path]:
    folders = [request.csrc.parent, INCLUDE.parent]
    if request.options.generated:
        folders.append(request.generated_dir)
    if any(options.sources or options.include for options in request.options.objects):
        folders.append(request.project.checkout.resolve())
    return dict.fromkeys(folders)


def include_flags(request: BuildRequest, options: ObjectOptions) -> list[str]:
    """The options of every compiler that name the folders of headers."""
    own = (project_file(request.csrc, request.project, name) for name in options.include)
    generated = [request.generated_dir] if request.options.generated else []
    folders = (*include_dirs(request.csrc), *own, *generated)
    return [f"-I{folder}" for folder in folders]


def define_flags(options: ObjectOptions) -> list[str]:
    return [
        f"-D{name}" if value is None else f"-D{name}={value}"
        for name, value in options.defines.items()
    ]


def sources_for(
    request: BuildRequest,
    kind: str,
    options: ObjectOptions,
    suffixes: Sequence[str],
    *,
    is_optional: bool = False,
) -> list[Path]:
    """The sources of the kernels or the glue, without torchship's own.

    They are those that the matrix names, else those of the kind's folder, and those that the
    project's programs write. Raises BuildError if there is none, unless `is_optional`.
    """
    folder = request.csrc / ("ops" if kind == "glue" else f"kernels/{kind}")
    if options.sources:
        chosen = sources_of(request.project, request.csrc, options.sources, suffixes)
    else:
        chosen = sources_below(folder, suffixes)
    for program in request.options.generated:
        if program.object == kind:
            written = (request.generated_dir / name for name in program.outputs)
            chosen += [path for path in written if path.suffix in suffixes]
    if not chosen and not is_optional:
        place = ", ".join(options.sources) or str(folder)
        rest = "" if kind == "glue" else f", or take {kind} from `kernels:`"
        raise BuildError(
            f"the {kind} object of {request.project.distribution} has no sources: looked for "
            f"{', '.join(suffixes)} in {place}; add one there, or name others under "
            f"`build: {kind}: sources:` of build_matrix.yaml{rest}"
        )
    return chosen


def system_libraries(options: ObjectOptions) -> list[str]:
    return [f"-l{name}" for name in options.libraries]


def link_flags(env: Mapping[str, str]) -> list[str]:
    """The linker flags of every shared object, LDFLAGS included."""
    # With --gc-sections from LDFLAGS, the linker would remove records to which no code
    # refers.
    return [*_LINK, *split_variable(env, "LDFLAGS"), "-Wl,--no-gc-sections", _HIDE_LIBSTDCXX]


def cpu_recipe(request: BuildRequest, _: KernelsName) -> Recipe:
    options = request.options.cpu
    standard = options.std or KERNEL_STANDARD
    command = [
        *request.compiler.command,
        f"-std=c++{standard}",
        *host_flags(request, "-O3"),
        *include_flags(request, options),
        *define_flags(options),
        *options.flags,
    ]
    return Recipe(
        sources=dict.fromkeys(sources_for(request, "cpu", options, HOST_SUFFIXES), command),
        libraries=system_libraries(options),
        facts={"device": "cpu", "cuda": None, "cuda_archs": [], "cxx_standard": standard},
    )


def cuda_recipe(request: BuildRequest, kernels: KernelsName) -> Recipe:
    toolkit = toolkit_for(request, kernels.cuda_major)
    architectures = architectures_for(request, toolkit)
    if isinstance(toolkit, CudaToolkit):
        return _nvcc_recipe(request, toolkit, architectures)
    return _clang_recipe(request, toolkit, architectures)


def architectures_for(request: BuildRequest, toolkit: CudaToolkit | ClangToolkit) -> list[str]:
    """The architectures to compile for, such as `sm_90`."""
    compilable = toolkit.architectures()
    listed = (
        request.env.get("TORCH_CUDA_ARCH_LIST")
        or request.architectures
        or default_architectures(toolkit.version, compilable)
    )
    return parse_architectures(listed, compilable)


def toolkit_for(request: BuildRequest, cuda_major: int | None) -> CudaToolkit | ClangToolkit:
    """The toolkit of the request, or the machine's, which must be of this CUDA major."""
    toolkit = request.cuda or find_cuda_toolkit(request.env, major=cuda_major)
    if toolkit is None:
        is_optional = request.project.has_cpu_glue and request.env.get("FORCE_CUDA")
        raise BuildError(
            f"the cuda{cuda_major} kernels need nvcc, but there is none: {NO_NVCC}"
            f"{', or unset FORCE_CUDA' if is_optional else ''}"
        )
    if toolkit.version[0] != cuda_major:
        place = toolkit.nvcc if isinstance(toolkit, CudaToolkit) else toolkit.folder
        raise BuildError(
            f"the cuda{cuda_major} kernels need an nvcc {cuda_major}.x, "
            f"got {toolkit.version_text} ({place}); "
            f"set CUDA_HOME to a CUDA {cuda_major} toolkit"
        )
    return toolkit


def _cuda_facts(
    request: BuildRequest,
    toolkit: CudaToolkit | ClangToolkit,
    architectures: list[str],
    compiler: str,
) -> dict[str, object]:
    return {
        "cxx_standard": request.options.cuda.std or KERNEL_STANDARD,
        "device": "cuda",
        "cuda": toolkit.version_text,
        "cuda_archs": architectures,
        "compiler": compiler,
    }


def _nvcc_recipe(request: BuildRequest, toolkit: CudaToolkit, architectures: list[str]) -> Recipe:
    options = request.options.cuda
    command = nvcc_command(
        request,
        toolkit,
        architectures,
        standard=options.std or KERNEL_STANDARD,
        host_options=[*host_flags(request, "-O3"), *include_flags(request, options)],
    )
    command += [*define_flags(options), *options.flags]
    host = _nvcc_host_options(request)
    return Recipe(
        sources=dict.fromkeys(_cuda_kernel_sources(request), command),
        libraries=[
            *(f"-L{folder}" for folder in toolkit.library_dirs),
            *cuda_link_inputs(options.libraries, toolkit.link_dirs if options.libraries else ()),
        ],
        facts=_cuda_facts(
            request,
            toolkit,
            architectures,
            f"nvcc {toolkit.version_text}, {request.compiler}",
        ),
        link=[toolkit.nvcc, "-cudart", "static", *host, *_nvcc_link_options(request.env)],
    )


def nvcc_command(
    request: BuildRequest,
    toolkit: CudaToolkit,
    architectures: list[str],
    *,
    standard: int,
    host_options: Sequence[str],
) -> list[str]:
    """The start of nvcc's command for a source, without the project's own flags.

    `host_options` are those of the host compiler, in its own spelling.
    """
    # nvcc has options of its own for what these three say.
    through_nvcc = [option for option in host_options if option not in ("-O2", "-O3", "-O0", "-g")]
    is_debug = read_flag(request.env, "DEBUG")
    codes = [f"arch=compute_{name.split('_')[1]},code={name}" for name in architectures]
    return [
        toolkit.nvcc,
        f"-std=c++{standard}",
        *(["-O0", "-g", "-lineinfo"] if is_debug else ["-O3"]),
        *_nvcc_host_options(request),
        *(word for code in codes for word in ("-gencode", code)),
        # GPU code is three quarters of a wheel, so compress it from CUDA 13 on. Every driver
        # for CUDA 13 reads this compression, but drivers for CUDA 12.0 to 12.3 do not.
        *(["--compress-mode=size"] if toolkit.version >= (13, 0) else []),
        # nvcc splits the value of its own -I at commas, which a folder's name may have.
        *(word for option in through_nvcc for word in _through_nvcc("-Xcompiler", option)),
    ]


def _cuda_kernel_sources(request: BuildRequest) -> list[Path]:
    suffixes = (*HOST_SUFFIXES, *CUDA_SUFFIXES)
    return sources_for(request, "cuda", request.options.cuda, suffixes)


def _nvcc_host_options(request: BuildRequest) -> list[str]:
    """nvcc's options that name the host compiler, and the platform to compile for."""
    compiler = request.compiler
    # nvcc's -ccbin takes one program. In CXX, a launcher may stand before it, options after
    # it.
    programs = list(takewhile(lambda word: not word.startswith("-"), compiler.command))
    if other := request.env.get("CUDAHOSTCXX"):
        options = ["-ccbin", other]
    else:
        own_options = compiler.command[len(programs) :]
        options = ["-ccbin", programs[-1], *(f"-Xcompiler={option}" for option in own_options)]
    machine = platform.machine()
    if compiler.machine not in ("", machine):
        # With a cross compiler, nvcc would look for a toolkit of the compiler's platform,
        # which is not here. This machine's toolkit has the same headers, so make nvcc use
        # this toolkit.
        options += ["--target-directory", f"{_CUDA_NAMES.get(machine, machine)}-linux"]
    return options


def _nvcc_link_options(env: Mapping[str, str]) -> list[str]:
    # No kernel calls a device function of another file, so the build needs no nvlink, which
    # would store the folders of -L in the binary.
    options = ["-shared", "--no-device-link"]
    # Names of local symbols would make the binary depend on the folder of the sources.
    options += ["-Xlinker", "--strip-all"]
    for option in link_flags(env)[1:]:  # `options` already has -shared
        # nvcc splits the value of -Xcompiler at commas, so pass A and B of -Wl,A,B by
        # -Xlinker.
        if option.startswith("-Wl,"):
            for word in option.removeprefix("-Wl,").split(","):
                options += _through_nvcc("-Xlinker", word)
        else:
            options += _through_nvcc("-Xcompiler", option)
    return options


def _through_nvcc(option: str, value: str) -> tuple[str, str]:
    """nvcc's `option` with a flag for the host compiler or linker, quoted for nvcc's shell."""
    is_plain = re.fullmatch(r"[\w@%+=:./-]+", value)
    return option, value if is_plain else f'"{value}"'


def _clang_recipe(request: BuildRequest, toolkit: ClangToolkit, architectures: list[str]) -> Recipe:
    options = request.options.cuda
    standard = options.std or KERNEL_STANDARD
    flags = [
        *host_flags(request, "-O3"),
        *include_flags(request, options),
        *define_flags(options),
        *clang_flags(options.flags),
    ]
    host = [*request.compiler.command, f"-std=c++{standard}", *flags]
    device = [*clang_command(toolkit, architectures, standard), *flags]
    library_dir = str(toolkit.folder / "lib64")
    sources = _cuda_kernel_sources(request)
    return Recipe(
        sources={source: device if source.suffix == ".cu" else host for source in sources},
        # NVIDIA's wheels of CUDA 12 hold no static runtime, so link the shared one. A torch
        # of this CUDA major has loaded it before the kernels are loaded.
        libraries=[
            *(f"-L{library_dir}", "-lcudart"),
            *cuda_link_inputs(options.libraries, [library_dir]),
        ],
        facts=_cuda_facts(
            request,
            toolkit,
            toolkit.actual(architectures),
            f"{toolkit.name}, CUDA {toolkit.version_text}, {request.compiler}",
        ),
    )


def clang_command(toolkit: ClangToolkit, architectures: list[str], standard: int) -> list[str]:
    """The start of clang's command for a CUDA source."""
    # clang warns of every `#pragma unroll` that it does not apply.
    quiet = "-Wno-pass-failed"
    return [toolkit.clang, f"-std=c++{standard}", *toolkit.flags(architectures), quiet]
