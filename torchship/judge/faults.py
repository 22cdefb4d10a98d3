"""Fifteen classes of faults of torch extensions; docs/fails/troubleshooting.md explains each."""

from . import codes


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

#: The class of each code that belongs to one.
OF_CODE: dict[codes.Code, Fault] = {
    codes.TORCH_MISSING: TORCH_NOT_LOADED,
    codes.TORCH_DAMAGED: TORCH_NOT_LOADED,
    codes.TORCH_OF_ANOTHER_PYTHON: TORCH_NOT_LOADED,
    codes.TORCH_SHADOWED: TORCH_NOT_LOADED,
    codes.TORCH_REQUIREMENTS: TORCH_NOT_LOADED,
    codes.TORCH_DOES_NOT_LOAD: TORCH_NOT_LOADED,
    codes.SECOND_TORCH: PACKAGE_FILES,
    codes.BACKEND_FAILS: TORCH_VERSION,
    codes.OTHER_TORCH: TORCH_VERSION,
    codes.TORCH_TOO_OLD: TORCH_VERSION,
    codes.TORCH_NOT_MEASURED: TORCH_VERSION,
    codes.TARGET_UNKNOWN: TORCH_VERSION,
    codes.MAYBE_OTHER_TORCH: TORCH_VERSION,
    codes.TORCH_LACKS_SYMBOLS: TORCH_VERSION,
    codes.OTHER_CXX_ABI: CXX_ABI,
    codes.WRONG_CXX_FLAG: CXX_ABI,
    codes.CXX_ABI_UNKNOWN: CXX_ABI,
    codes.REGISTERED_TWICE: REGISTERED_TWICE,
    codes.NO_FINGERPRINT: PACKAGE_FILES,
    codes.LOADED_BEFORE_TORCH: TORCH_NOT_LOADED,
    codes.OPERATOR_MISSING: TORCH_VERSION,
    codes.DAMAGED_FILE: PACKAGE_FILES,
    codes.FILE_NOT_READABLE: PACKAGE_FILES,
    codes.FILE_OF_ANOTHER_BUILD: PACKAGE_FILES,
    codes.PACKAGE_FILES: PACKAGE_FILES,
    codes.SOURCE_FOLDER: PACKAGE_FILES,
    codes.CACHE_REFUSED: PACKAGE_FILES,
    codes.LOAD_FAILED: TORCH_VERSION,
    codes.PATH_NOT_LOADABLE: PACKAGE_FILES,
    codes.OTHER_PYTHON: PACKAGE_FILES,
    codes.FREE_THREADED: REGISTERED_TWICE,
    codes.PAGE_SIZE: SYSTEM_LIBRARIES,
    codes.GLIBC_TOO_OLD: SYSTEM_LIBRARIES,
    codes.LIBSTDCXX_TOO_OLD: SYSTEM_LIBRARIES,
    codes.CUDA_TORCH_NEEDED: CPU_TORCH_SWAPPED_IN,
    codes.OTHER_CUDA: CUDA_MAJOR,
    codes.DRIVER_TOO_OLD: DRIVER,
    codes.NO_DRIVER: DRIVER,
    codes.GPU_ARCHITECTURE: GPU_ARCHITECTURE,
    codes.NO_CUDA_KERNELS: CPU_ONLY_BINARY,
    codes.TORCH_LACKS_GPU: GPU_ARCHITECTURE,
    codes.MISCOMPILED_GPU_CODE: GPU_ARCHITECTURE,
    codes.NO_FILE_FOR_CUDA: CUDA_MAJOR,
    codes.LIBRARY_MISSING: SYSTEM_LIBRARIES,
    codes.SYMBOL_MISSING: SYSTEM_LIBRARIES,
    codes.LIBRARY_VERSION: CUDA_MAJOR,
    codes.LIBRARY_OF_TORCH_MISSING: TORCH_VERSION,
    codes.OTHER_LIBRARY_FIRST: SYSTEM_LIBRARIES,
    codes.LIBRARY_REFUSED: PACKAGE_FILES,
    codes.COMPILES_AT_FIRST_USE: TOOLCHAIN,
    codes.WITHOUT_ITS_OPS: CPU_ONLY_BINARY,
    codes.FALLS_BACK: TORCH_VERSION,
    codes.PACKAGE_OF_ANOTHER_PYTHON: PACKAGE_FILES,
    codes.WRITTEN_FOR_ANOTHER_TORCH: TORCH_VERSION,
    codes.HIDDEN_COPY: PACKAGE_FILES,
    codes.NVCC_MISMATCH: NVCC_MISMATCH,
    codes.NO_TOOLKIT: TOOLCHAIN,
    codes.HOST_COMPILER: TOOLCHAIN,
    codes.CXX_STANDARD: TOOLCHAIN,
    codes.BUILD_ISOLATION: BUILD_ISOLATION,
    codes.UNKNOWN_ARCHITECTURE: UNKNOWN_ARCH,
    codes.NO_NINJA: TOOLCHAIN,
    codes.BUILD_MEMORY: TOOLCHAIN,
}
