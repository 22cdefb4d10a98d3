"""How the glue is compiled and linked: with torch's headers, and with CUDA if it has such code."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..judge.records import GlueName, TorchInstall, dotted
from .cuda_flags import clang_flags
from .cuda_libraries import cuda_link_inputs
from .cuda_toolkit import CudaToolkit
from .options import ObjectOptions
from .programs import BuildError
from .recipes import (
    Recipe,
    architectures_for,
    clang_command,
    cxx_standard,
    define_flags,
    host_flags,
    include_flags,
    nvcc_command,
    sources_for,
    system_libraries,
    toolkit_for,
)
from .registered_twice import refuse_what_is_registered_twice
from .request import BuildRequest
from .sources import CUDA_SUFFIXES, HOST_SUFFIXES, INCLUDE, engine_sources, sources_of

# The OpenMP symbols that ATen's parallel_for calls. The linker may leave only these
# undefined.
_OPENMP_SYMBOLS = ("GOMP_parallel", "omp_get_num_threads", "omp_get_thread_num")
#: In place of headers of torch that include Python's; see the header there.
_WITHOUT_PYTHON = INCLUDE / "torchship" / "torch_aten"
# What torch.utils.cpp_extension defines for nvcc: existing code with torch's half types needs it.
_ATEN_CUDA_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)


def glue_recipe(request: BuildRequest, glue: GlueName) -> Recipe:
    torch = _torch_for(request, glue)
    options = request.options.glue
    if glue.cuda_major is not None:
        options = _joined(options, request.options.glue_cuda)
    standard = max(options.std or 0, cxx_standard(glue.lane, torch.version_tuple))
    command = _host_command(request, glue, torch, options, standard=standard)
    # All code of a glue for CUDA alone may be in its CUDA sources.
    is_optional = glue.cuda_major is not None
    own = sources_for(request, "glue", request.options.glue, HOST_SUFFIXES, is_optional=is_optional)
    recipe = Recipe(
        sources=dict.fromkeys([*engine_sources(glue.lane), *own], command),
        libraries=_libraries(request, glue, torch),
        facts={
            "torch_target": dotted(glue.torch),
            "torch_built": torch.version,
            "lane": glue.lane,
            "cxx11_abi": torch.cxx11_abi,
            "cxx_standard": standard,
        },
    )
    if glue.cuda_major is not None:
        recipe = _with_cuda(request, glue, recipe, standard=standard)
    if glue.lane == "aten":
        refuse_what_is_registered_twice(recipe.sources)
    return recipe


def _host_command(
    request: BuildRequest,
    glue: GlueName,
    torch: TorchInstall,
    options: ObjectOptions,
    *,
    standard: int,
) -> list[str]:
    """The command of the host compiler; its flags are the same for every source."""
    return [
        *request.compiler.command,
        f"-std=c++{standard}",
        *_shared_options(request, glue, torch, options),
        *define_flags(options),
        *request.options.glue.flags,
    ]


def _joined(options: ObjectOptions, more: ObjectOptions) -> ObjectOptions:
    """The options of a glue with CUDA code, but for the flags, which are for one compiler each,
    and the sources."""
    return ObjectOptions(
        include=(*options.include, *more.include),
        defines={**options.defines, **more.defines},
        std=max(options.std or 0, more.std or 0) or None,
        libraries=options.libraries,
    )


def _shared_options(
    request: BuildRequest, glue: GlueName, torch: TorchInstall, options: ObjectOptions
) -> list[str]:
    """The options that every source of a glue gets from the host compiler, nvcc's included."""
    # Error messages in torch's headers contain __FILE__; the binary must not name torch's
    # folder.
    sites = dict.fromkeys((torch.root.parent, torch.root.resolve().parent))
    without_python = [] if glue.lane == "stable" else [f"-I{_WITHOUT_PYTHON}"]
    return [
        *host_flags(request, "-O2"),
        f"-D_GLIBCXX_USE_CXX11_ABI={1 if torch.cxx11_abi is None else torch.cxx11_abi}",
        *(f"-ffile-prefix-map={site}{os.sep}=" for site in sites),
        *include_flags(request, options),
        *without_python,
        *("-isystem", str(torch.include_dir)),
        *("-isystem", str(torch.include_dir / "torch" / "csrc" / "api" / "include")),
        *_door_options(request, glue)[0],
    ]


def _libraries(request: BuildRequest, glue: GlueName, torch: TorchInstall) -> list[str]:
    return [
        f"-L{torch.lib_dir}",
        # -Wl would split a path at its commas.
        *("-Xlinker", "-rpath-link", "-Xlinker", str(torch.lib_dir)),
        # libtorch must stay in DT_NEEDED although the glue uses no symbol of it: in a CUDA
        # build, libtorch loads libtorch_cuda, which resolves the weak references to CUDA
        # functions.
        *("-Wl,--push-state,--no-as-needed", "-ltorch", "-ltorch_cpu", "-Wl,--pop-state"),
        *_door_options(request, glue)[1],
        *system_libraries(request.options.glue),
    ]


@dataclass(frozen=True, kw_only=True)
class _DeviceCompiler:
    """What compiles a glue's CUDA sources, and what its toolkit gives to the other sources."""

    command: list[str]
    name: str
    architectures: list[str]
    include_dirs: tuple[str, ...]
    library_dirs: tuple[str, ...]
    runtime: tuple[str, ...]  #: the linker's options for CUDA's runtime


def _device_compiler(
    request: BuildRequest, glue: GlueName, shared: list[str], standard: int
) -> _DeviceCompiler:
    """The compiler of the CUDA sources, with the options `shared` of the host's."""
    toolkit = toolkit_for(request, glue.cuda_major)
    architectures = architectures_for(request, toolkit)
    options = request.options.glue_cuda
    own = [
        *(_ATEN_CUDA_FLAGS if glue.lane == "aten" else ()),
        *define_flags(_joined(request.options.glue, options)),
    ]
    if isinstance(toolkit, CudaToolkit):
        start = nvcc_command(
            request, toolkit, architectures, standard=standard, host_options=shared
        )
        return _DeviceCompiler(
            command=[*start, "--expt-relaxed-constexpr", *own, *options.flags],
            name=f"nvcc {toolkit.version_text}, {request.compiler}",
            architectures=architectures,
            include_dirs=toolkit.include_dirs,
            library_dirs=toolkit.link_dirs,
            runtime=("-lcudart_static", "-lrt", "-lpthread", "-ldl"),
        )
    start = clang_command(toolkit, architectures, standard)
    return _DeviceCompiler(
        command=[*start, *shared, *own, *clang_flags(options.flags)],
        name=f"{toolkit.name}, CUDA {toolkit.version_text}, {request.compiler}",
        architectures=toolkit.actual(architectures),
        include_dirs=(str(toolkit.folder / "include"),),
        library_dirs=(str(toolkit.folder / "lib64"),),
        runtime=("-lcudart",),
    )


def _with_cuda(
    request: BuildRequest,
    glue: GlueName,
    recipe: Recipe,
    *,
    standard: int,
) -> Recipe:
    """The recipe of a glue that has its own CUDA code, with torch's headers."""
    options = request.options.glue_cuda
    torch = _torch_for(request, glue)
    joined = _joined(request.options.glue, options)
    # A source finds the headers of its own section first, since two extensions may have become one.
    joined = replace(joined, include=(*options.include, *request.options.glue.include))
    # The toolkit's own headers come first: the wheels beside torch may be of another release.
    beside = _headers_beside(torch)
    shared = [*_shared_options(request, glue, torch, joined), *beside]
    device = _device_compiler(request, glue, shared, standard)
    headers = [*_system_headers(device.include_dirs), *beside]
    more = sources_of(request.project, request.csrc, options.sources, HOST_SUFFIXES)
    command = _host_command(request, glue, torch, joined, standard=standard)
    host = {**recipe.sources, **{path: command for path in more if path not in recipe.sources}}
    sources = sources_for(request, "glue", options, CUDA_SUFFIXES, is_optional=bool(more))
    return Recipe(
        sources={
            **{source: [*words, *headers] for source, words in host.items()},
            **dict.fromkeys(sources, device.command),
        },
        libraries=[
            *recipe.libraries,
            *_cuda_libraries_of_torch(request, glue),
            *(f"-L{folder}" for folder in device.library_dirs),
            *cuda_link_inputs(options.libraries, device.library_dirs),
            *device.runtime,
        ],
        facts={
            **recipe.facts,
            "cuda": toolkit_for(request, glue.cuda_major).version_text,
            "cuda_archs": device.architectures,
            "compiler": device.name,
        },
    )


def _headers_beside(torch: TorchInstall) -> list[str]:
    """The options for the headers of cuBLAS and its like, which ATen's headers include.

    NVIDIA's wheels, which torch's wheel requires, have them.
    """
    folders = sorted(torch.root.parent.glob("nvidia/*/include"))
    return _system_headers(map(str, folders))


def _system_headers(folders: Iterable[str]) -> list[str]:
    return [word for folder in folders for word in ("-isystem", folder)]


def _cuda_libraries_of_torch(request: BuildRequest, glue: GlueName) -> list[str]:
    """What ATen's CUDA headers call; the stable ABI calls nothing of it."""
    if glue.lane == "stable":
        return []
    torch = _torch_for(request, glue)
    if torch.cuda_major is None:
        # Of code that is for CUDA alone, nothing would remain.
        otherwise = ", or set FORCE_CUDA=0 for the glue without CUDA"
        raise BuildError(
            f"the glue {glue} has CUDA code with ATen's headers, so it needs a CUDA build of torch "
            f"to compile against, got torch {torch.version}; install a CUDA build of torch"
            f"{otherwise if request.project.has_cpu_glue else ''}"
        )
    return ["-lc10_cuda", "-ltorch_cuda"]


def _torch_for(request: BuildRequest, glue: GlueName) -> TorchInstall:
    torch = request.torch
    if torch is None:
        raise BuildError(
            f"the glue {glue} needs a torch to compile against, got none; "
            "install torch, or pass the one to build for"
        )
    if not glue.serves(torch):
        more = "or newer" if glue.lane == "stable" else f"with C++ ABI {glue.cxx11_abi}"
        raise BuildError(
            f"the glue {glue} must be compiled against torch {dotted(glue.torch)} {more}, "
            f"got torch {torch.version} with C++ ABI {torch.cxx11_abi} in {torch.root}; "
            "pass a torch that fits"
        )
    return torch


def _door_options(request: BuildRequest, glue: GlueName) -> tuple[list[str], list[str]]:
    """The compiler's options and the libraries of the glue's door into torch."""
    if glue.lane == "stable":
        # The newest torch whose functions the object may call, in the encoding of torch's
        # headers.
        major, minor = glue.torch
        target = (major << 56) | (minor << 48)
        # dlopen is in libdl before glibc 2.34.
        return [f"-DTORCH_TARGET_VERSION={target:#018x}"], ["-ldl"]
    # Without -fopenmp, ATen's parallel_for (in a header) is serial. Code from g++ finds
    # libgomp in the process, since torch has loaded it. Linking libgomp could load a second
    # copy: some of torch's wheels for Arm hold a renamed libgomp. Code from clang links
    # clang's libomp.
    if "clang" in request.compiler.name:
        openmp = ["-fopenmp"]
    else:
        openmp = [f"-Wl,--ignore-unresolved-symbol={name}" for name in _OPENMP_SYMBOLS]
    return ["-DAT_PER_OPERATOR_HEADERS", "-fopenmp"], ["-lc10", *openmp]
