"""Rules about what the dynamic linker looks up: libraries, and symbols that are not torch's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import fixes
from ..reading.binary import is_torch_library, is_torch_symbol
from ..records import NOTE, OK, REJECTED, UNKNOWN, BinaryRecord, Finding, Fix, Runtime
from ..text import some
from ..words import codes, faults
from .host import STARTS_OF_PYTHON_SYMBOLS
from .rule import NEEDS_SYMBOLS, Rule

#: The faults that a missing library can show. The first that applies is the cause.
_FAULTS_BY_RANK = (
    faults.CPU_TORCH_SWAPPED_IN,
    faults.TORCH_NOT_LOADED,
    faults.CUDA_MAJOR,
    faults.DRIVER,
    faults.SYSTEM_LIBRARIES,
)

#: How the libraries of the NVIDIA driver begin.
LIBRARIES_OF_DRIVER = ("libcuda.so", "libnvidia-", "libnvcuvid.so", "libnvoptix.so")

#: The libraries of the CUDA toolkit and of NVIDIA's wheels beside it. Others begin alike:
#: libcurl, libcups, and TensorRT's libnvinfer and libnvonnxparser.
_LIBRARY_OF_CUDA = (
    r"lib(cudart|cublas|cufft|curand|cusolver|cusparse|cudnn|cudss|cupti|cufile|cutensor|nccl"
    r"|npp\w+|nvrtc|nvJitLink|nvToolsExt|nvtx|nvjpeg|nvshmem|nvperf|nvvm|nvfatbin|nvblas)"
    r"(Lt|Mg|w|_\w+)?(-\w+)?\.so"
)

#: Libraries that torch no longer has, by their starts, and what had them.
_OF_FORMER_TORCHES = {
    "libtorch_cuda_cu.so": "a CUDA build of torch before 2.1",
    "libtorch_cuda_cpp.so": "a CUDA build of torch before 2.1",
    "libcaffe2": "torch before 1.3",
    "libtorch.so.1": "torch before 1.3",
}

#: How libraries begin that come with the builds of torch for the GPUs of AMD and Intel.
_OF_OTHER_GPUS = (
    *("libamd", "libhip", "libhsa", "libMIOpen", "libroc", "librccl"),
    *("libsycl", "libur_", "libze_", "libmkl"),
)

_CODES = {
    faults.CPU_TORCH_SWAPPED_IN: codes.CUDA_TORCH_NEEDED,
    faults.TORCH_NOT_LOADED: codes.LIBRARY_OF_TORCH_MISSING,
    faults.CUDA_MAJOR: codes.OTHER_CUDA,
    faults.DRIVER: codes.NO_DRIVER,
    faults.SYSTEM_LIBRARIES: codes.LIBRARY_MISSING,
}


def check_libraries(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    missing = runtime.missing_libraries.get(str(binary.path))
    if missing is None:
        return _not_looked_for(binary)
    if not missing:
        return Finding(
            status=OK,
            observed="all found",
            needed=f"{len(binary.needed)} libraries",
        )
    elsewhere = {neighbour.library: neighbour for neighbour in binary.neighbours}
    if all(library in elsewhere for library in missing):
        return _in_other_wheels(binary, missing)
    missing = tuple(sorted(missing, key=_rank))
    fault = _fault_of_missing(missing[0])
    why, fix = _explain_missing(binary, runtime, missing, fault)
    return Finding(
        status=REJECTED,
        code=_CODES[fault],
        observed=f"missing: {some(missing, 8)}",
        needed="all found",
        why=why,
        fix=fix,
    )


def _not_looked_for(binary: BinaryRecord) -> Finding | None:
    """Libraries of CUDA are often missing; if they were not looked for, nothing can be told."""
    cuda = [name for name in binary.needed if _is_of_cuda(name)]
    if not cuda:
        return None
    return Finding(
        status=UNKNOWN,
        code=codes.LIBRARIES_NOT_LOOKED_FOR,
        observed="not looked for",
        needed=some(cuda),
        why="not looked for",
    )


def needs_cuda(binary: BinaryRecord) -> bool:
    """Whether a binary needs a library of CUDA by its name."""
    return any(map(_is_of_cuda, binary.needed))


def may_come_with_torch(library: str) -> bool:
    """Whether some build of torch brings a library of this name, or the driver of its GPUs does."""
    return (
        is_torch_library(library)
        or _is_of_cuda(library)
        or library.startswith((*LIBRARIES_OF_DRIVER, *_OF_FORMER_TORCHES, *_OF_OTHER_GPUS))
    )


def _is_of_cuda(library: str) -> bool:
    if not library.startswith(("libcu", "libn")):
        return False  # so that most imports of a project compile no pattern
    return re.match(_LIBRARY_OF_CUDA, library) is not None


def _in_other_wheels(binary: BinaryRecord, missing: Sequence[str]) -> Finding:
    """All that the linker does not find lies in wheels that the package requires or opens."""
    unopened = [neighbour for neighbour in binary.neighbours if not neighbour.is_opened]
    first = unopened[0] if unopened else binary.neighbours[0]
    why = f"{first.library} is in {first.distribution}, and the package's Python opens it first"
    if unopened:
        why = (
            f"{first.library} is in {first.distribution}, where the dynamic linker does not look; "
            "whether the package opens it first cannot be told"
        )
    return Finding(
        status=UNKNOWN if unopened else NOTE,
        code=codes.LOADED_BY_PYTHON,
        observed=f"in other wheels: {some(missing, 8)}",
        needed="all found",
        why=why,
    )


def _explain_missing(
    binary: BinaryRecord, runtime: Runtime, missing: tuple[str, ...], fault: faults.Fault
) -> tuple[str, Fix]:
    """Why the first missing library is not here, and the fix."""
    first = missing[0][:200]
    torch = runtime.torch
    # A torch without metadata is here all the same.
    unmet_ones = (one for one in binary.unmet if torch is None or _name_in(one.text) != "torch")
    unmet = next((one for one in unmet_ones if _may_hold(one.text, first)), None)
    if unmet is not None and not runtime.is_ours(binary):
        required = f"its package requires {unmet.text}, which is missing"
        return f"{binary.file} needs {first}, and {required}", unmet.fix
    device = torch.device if torch else ""
    if fault is faults.CPU_TORCH_SWAPPED_IN:
        return _other_build_of_torch(binary, runtime, missing)
    if fault is faults.DRIVER:
        return (
            f"{first} is part of the NVIDIA driver, and no driver is installed here",
            fixes.install_driver(),
        )
    if fault is faults.CUDA_MAJOR:
        build = f"torch is built for {device}" if torch else "there is no torch"
        fix = fixes.same_cuda(binary, runtime, cuda_major(missing))
        if runtime.is_ours(binary):
            fix = fixes.fit_torch(runtime)
        return f"{binary.file} needs {first}, which is not here ({build})", fix
    if fault is faults.TORCH_NOT_LOADED:
        return _missing_of_torch(binary, runtime, first)
    fix = fixes.machine_library(first, binary, runtime)
    return f"{first} is nowhere on the library path", fix


def _other_build_of_torch(
    binary: BinaryRecord, runtime: Runtime, missing: tuple[str, ...]
) -> tuple[str, Fix]:
    torch = runtime.torch
    device = next((name for name in ("hip", "xpu") if name in missing[0]), "cuda").upper()
    major = cuda_major(missing) if device == "CUDA" else ""
    build = f"{device} {major}".strip()
    device_here = torch.device if torch else ""
    why = f"{binary.file} needs a {build} build of torch, and this one is built for {device_here}"
    if runtime.is_ours(binary):
        return why, fixes.cuda_torch(runtime.environment, torch)
    return why, fixes.same_cuda(binary, runtime, major)


def _missing_of_torch(binary: BinaryRecord, runtime: Runtime, library: str) -> tuple[str, Fix]:
    torch = runtime.torch
    if torch is None:
        fix = fixes.install_torch(runtime.environment, runtime.project)
        return f"{library} is a library of torch that is not here", fix
    former = next((of for s, of in _OF_FORMER_TORCHES.items() if library.startswith(s)), "")
    built_for = f": {binary.file} was built for {former}, which had it" if former else ""
    why = f"torch {torch.version} has no {library}{built_for}"
    if runtime.is_ours(binary):
        return why, fixes.reinstall_torch(runtime.environment, torch)
    return why, fixes.fix_for(fixes.Wrong.BUILD, binary, runtime)


def _name_in(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def _may_hold(requirement: str, library: str) -> bool:
    """Whether a distribution may hold a library: `nvidia-cudnn-cu12` holds `libcudnn.so.9`."""
    name = _name_in(requirement)
    stem = library.removeprefix("lib").partition(".so")[0].lower()
    words = {part for part in re.split(r"[-_.]", name) if len(part) > 3 and part != "nvidia"}
    return any(stem.startswith(word) for word in words)


def _rank(library: str) -> int:
    return _FAULTS_BY_RANK.index(_fault_of_missing(library))


def _fault_of_missing(library: str) -> faults.Fault:
    if library.startswith(tuple(_OF_FORMER_TORCHES)):
        return faults.TORCH_NOT_LOADED
    if is_torch_library(library):
        is_for_gpu = any(device in library for device in ("cuda", "hip", "xpu"))
        return faults.CPU_TORCH_SWAPPED_IN if is_for_gpu else faults.TORCH_NOT_LOADED
    if library.startswith(LIBRARIES_OF_DRIVER):
        return faults.DRIVER
    is_of_cuda = _is_of_cuda(library)
    return faults.CUDA_MAJOR if is_of_cuda else faults.SYSTEM_LIBRARIES


def cuda_major(libraries: Sequence[str]) -> str:
    """`12` from `libcudart.so.12`; "" if no name holds the major."""
    starts = ("libcudart.so.", "libnvrtc.so.", "libcublas.so.", "libcublasLt.so.")
    first = next((name for name in libraries if name.startswith(starts)), "")
    return first.partition(".so.")[2].partition(".")[0]


def check_symbols(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Are there missing symbols that neither torch nor Python should define?"""
    missing = runtime.missing_symbols.get(str(binary.path), ())
    others = [name for name in missing if not name.startswith(STARTS_OF_PYTHON_SYMBOLS)]
    absent = [name for name in others if not is_torch_symbol(name.encode())]
    if not absent:
        return None
    return Finding(
        status=REJECTED,
        code=codes.SYMBOL_MISSING,
        observed=f"{len(absent)} missing: {some(absent)}",
        needed="all found",
        why=f"no library that {binary.file} needs defines {absent[0][:200]}",
        fix=fixes.fix_for(fixes.Wrong.BUILD, binary, runtime),
    )


LIBRARIES = Rule(
    rank=610,
    dimension="libraries",
    codes=(*_CODES.values(), codes.LIBRARIES_NOT_LOOKED_FOR, codes.LOADED_BY_PYTHON),
    check=check_libraries,
)
SYMBOLS = Rule(
    rank=620,
    dimension="symbols",
    codes=(codes.SYMBOL_MISSING,),
    check=check_symbols,
    needs=(NEEDS_SYMBOLS,),
)
