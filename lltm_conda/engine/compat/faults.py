"""Fifteen classes of faults of torch extensions; docs/fails/troubleshooting.md explains them."""

from __future__ import annotations

import re

from ..project import Record

(
    TORCH_VERSION,
    CXX_ABI,
    CUDA_MAJOR,
    GPU_ARCHITECTURE,
    DRIVER,
    CPU_TORCH_SWAPPED_IN,
    CPU_ONLY_BINARY,
    PACKAGE_FILES,
    TORCH_NOT_LOADED,
    SYSTEM_LIBRARIES,
    NVCC_MISMATCH,
    TOOLCHAIN,
    BUILD_ISOLATION,
    UNKNOWN_ARCH,
    REGISTERED_TWICE,
) = range(1, 16)


class Fault(Record):
    """One class: its number and its name."""

    number: int
    title: str


FAULTS = (
    Fault(TORCH_VERSION, "Another torch minor"),
    Fault(CXX_ABI, "Another C++ ABI"),
    Fault(CUDA_MAJOR, "Another CUDA major"),
    Fault(GPU_ARCHITECTURE, "GPU architecture missing"),
    Fault(DRIVER, "Driver too old"),
    Fault(CPU_TORCH_SWAPPED_IN, "A CPU-only torch was swapped in"),
    Fault(CPU_ONLY_BINARY, "A CPU-only extension on CUDA tensors"),
    Fault(PACKAGE_FILES, "Stale or duplicate files, or a source folder in the way"),
    Fault(TORCH_NOT_LOADED, "The extension was loaded before torch, or torch is missing"),
    Fault(SYSTEM_LIBRARIES, "libstdc++ or glibc too old"),
    Fault(NVCC_MISMATCH, "nvcc differs from torch's CUDA"),
    Fault(TOOLCHAIN, "No toolkit, or a host compiler too new or too old"),
    Fault(BUILD_ISOLATION, "Build isolation"),
    Fault(UNKNOWN_ARCH, "No GPU at build time, or an unknown architecture"),
    Fault(REGISTERED_TWICE, "Registered twice; free-threaded Python"),
)

#: What the dynamic linker, torch and CUDA say, and the class it belongs to; the first match wins.
_TEXTS: tuple[tuple[str, int], ...] = (
    (r"version [`']?(GLIBCXX|GLIBC|CXXABI)_[\d.]+'? not found", SYSTEM_LIBRARIES),
    (r"undefined symbol: \S*(ESs|RKSs|7__cxx11)", CXX_ABI),
    (r"undefined symbol: THP", TORCH_NOT_LOADED),
    (r"undefined symbol: (_Z\w*(2at|3c10|5torch)|aoti_torch_|torch_)", TORCH_VERSION),
    (r"lib(torch_cuda|c10_cuda)\.so: cannot open", CPU_TORCH_SWAPPED_IN),
    (r"lib(torch|c10)\w*\.so: cannot open", TORCH_NOT_LOADED),
    (r"lib(cu|nv)\w+\.so[.\d]*: cannot open", CUDA_MAJOR),
    (r"no kernel image is available", GPU_ARCHITECTURE),
    (r"unsupported toolchain|driver version is insufficient", DRIVER),
    (r"built for \S+\+cu\d+ \(you have \S+\+cpu\)|not compiled with CUDA", CPU_TORCH_SWAPPED_IN),
    (r"Could not run '\S+' with arguments from the 'CUDA' backend", CPU_ONLY_BINARY),
    (r"[Oo]nly a single TORCH_LIBRARY can be used", REGISTERED_TWICE),
    (r"same name and the same overload name multiple times|Tried to register", REGISTERED_TWICE),
    (r"cannot import name '_C'|file too short|invalid ELF header", PACKAGE_FILES),
    (r"detected CUDA version \([\d.]+\) mismatches", NVCC_MISMATCH),
    (r"CUDA_HOME environment variable is not set|unsupported GNU version", TOOLCHAIN),
    (r"No module named 'torch'", BUILD_ISOLATION),
    (r"Unknown CUDA arch", UNKNOWN_ARCH),
)


def classify(message: str) -> Fault | None:
    """The class an error text belongs to, or None for a text that is not known."""
    for pattern, number in _TEXTS:
        if re.search(pattern, message):
            return FAULTS[number - 1]
    return None
