"""Fifteen classes of faults of torch extensions; docs/fails/troubleshooting.md explains each."""

import re


class Fault(int):
    """The number of a class of faults, with the title of the class."""

    title: str

    def __new__(cls, number: int, title: str) -> "Fault":
        fault = super().__new__(cls, number)
        fault.title = title
        return fault


TORCH_VERSION = Fault(1, "Another minor version of torch")
CXX_ABI = Fault(2, "Another C++ ABI")
CUDA_MAJOR = Fault(3, "Another CUDA major version")
GPU_ARCHITECTURE = Fault(4, "GPU architecture missing")
DRIVER = Fault(5, "Driver too old")
CPU_TORCH_SWAPPED_IN = Fault(6, "A CPU-only torch was swapped in")
CPU_ONLY_BINARY = Fault(7, "A CPU-only extension on CUDA tensors")
PACKAGE_FILES = Fault(8, "Stale or duplicate files, or a source folder in the way")
TORCH_NOT_LOADED = Fault(9, "The extension was loaded before torch, or torch is missing")
SYSTEM_LIBRARIES = Fault(10, "libstdc++ or glibc too old")
NVCC_MISMATCH = Fault(11, "nvcc has another CUDA version than torch")
TOOLCHAIN = Fault(12, "No toolkit, or a host compiler too new or too old")
BUILD_ISOLATION = Fault(13, "Build isolation")
UNKNOWN_ARCH = Fault(14, "No GPU at build time, or an unknown architecture")
REGISTERED_TWICE = Fault(15, "Registered twice, or free-threaded Python")

#: Patterns of error messages, and the class of faults for each; the first match wins.
_TEXTS: tuple[tuple[str, Fault], ...] = (
    (r"version [`']?(GLIBCXX|GLIBC|CXXABI)_[\d.]+'? not found", SYSTEM_LIBRARIES),
    (r"undefined symbol: \S*(ESs|RKSs|7__cxx11)", CXX_ABI),
    (r"undefined symbol: THP", TORCH_NOT_LOADED),
    (r"undefined symbol: (_Z\w*(2at|3c10|5torch)|aoti_torch_|torch_)", TORCH_VERSION),
    (r"lib(torch_cuda|c10_cuda)\.so: cannot open", CPU_TORCH_SWAPPED_IN),
    (r"lib(torch|c10)\w*\.so: cannot open", TORCH_NOT_LOADED),
    (r"lib(cu|nv)\w+\.so[.\d]*: cannot open", CUDA_MAJOR),
    (r"no kernel image is available", GPU_ARCHITECTURE),
    (r"unsupported toolchain|driver version is insufficient", DRIVER),
    (
        r"built for \S+\+cu\d+ \(you have \S+\+cpu\)|not compiled with CUDA",
        CPU_TORCH_SWAPPED_IN,
    ),
    (r"Could not run '\S+' with arguments from the 'CUDA' backend", CPU_ONLY_BINARY),
    (r"[Oo]nly a single TORCH_LIBRARY can be used", REGISTERED_TWICE),
    (
        r"same name and the same overload name multiple times|Tried to register",
        REGISTERED_TWICE,
    ),
    (r"cannot import name '_C'|file too short|invalid ELF header", PACKAGE_FILES),
    (r"detected CUDA version \([\d.]+\) mismatches", NVCC_MISMATCH),
    (r"CUDA_HOME environment variable is not set|unsupported GNU version", TOOLCHAIN),
    (r"No module named 'torch'", BUILD_ISOLATION),
    (r"Unknown CUDA arch", UNKNOWN_ARCH),
)


def classify(message: str) -> Fault | None:
    """The class of faults that an error text belongs to; None for an unknown text."""
    return next((fault for pattern, fault in _TEXTS if re.search(pattern, message)), None)
