"""Fifteen classes of faults of torch extensions; docs/fails/codes/index.md lists them."""


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
NVCC_MISMATCH = Fault(11, "nvcc's CUDA version differs from torch's")
TOOLCHAIN = Fault(12, "No toolkit, or a host compiler too new or too old")
BUILD_ISOLATION = Fault(13, "Build isolation")
UNKNOWN_ARCH = Fault(14, "No GPU at build time, or an unknown architecture")
REGISTERED_TWICE = Fault(15, "Registered twice, or free-threaded Python")
