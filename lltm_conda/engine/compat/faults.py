"""The fifteen classes of faults of torch extensions: the numbers that findings carry, and the text
of the troubleshooting page.
"""

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
    """One class: its number and name, how it looks, why it happens, how to fix it, how proven.

    In the texts, `{0}` stands for the project.

    `proof` is "injected" (a test that runs anywhere makes it happen), "GPU machine" (a test marked
    cuda shows it) or "simulated" (the fact is given to the probe).
    """

    number: int
    title: str
    looks: str
    why: str
    mend: str
    proof: str = "injected"


FAULTS: tuple[Fault, ...] = (
    Fault(
        TORCH_VERSION,
        "Another torch minor",
        "`undefined symbol: _ZN2at4_ops10zeros_like4call…`, or an abort inside the import, or "
        "wrong results without any message",
        "An ATen binary knows the layout of torch's C++ classes, which change from minor to minor. "
        "Often nothing is missing and the process dies or computes nonsense all the same.",
        "Install a build of {0.distribution} that fits this torch, or let `{0.command} build` make "
        "one. From torch 2.10 on the stable-ABI binary fits every torch.",
    ),
    Fault(
        CXX_ABI,
        "Another C++ ABI",
        "`undefined symbol: …ErrorC2ENS_14SourceLocationESs` (or `…__cxx11…`)",
        "libstdc++ has two layouts of `std::string`. PyPI's torch used the old one up to 2.6, "
        "conda-forge's always the new one; a binary must match the torch build, not the version.",
        "Install the variant of the other flavour (`abi0` or `abi1`), or build one here.",
    ),
    Fault(
        CUDA_MAJOR,
        "Another CUDA major",
        "`libcudart.so.12: cannot open shared object file`",
        "The kernels were built for a CUDA major whose runtime is not there: torch brought "
        "another.",
        "Install the variant for torch's CUDA major.",
    ),
    Fault(
        GPU_ARCHITECTURE,
        "GPU architecture missing",
        "`no kernel image is available for execution on the device`",
        "The binary holds machine code for other GPU generations, and no PTX that this GPU could "
        "compile.",
        "Install a build for this GPU, or build here: the architecture is taken from the GPU.",
        "GPU machine",
    ),
    Fault(
        DRIVER,
        "Driver too old",
        "`provided PTX was compiled with an unsupported toolchain`, "
        "`CUDA driver version is insufficient for CUDA runtime version`",
        "The kernels' CUDA is newer than what the driver serves.",
        "Update the NVIDIA driver, or install torch and {0.distribution} for the older CUDA major.",
        "simulated",
    ),
    Fault(
        CPU_TORCH_SWAPPED_IN,
        "A CPU-only torch was swapped in",
        "`built for …+cu121 (you have …+cpu)`, `Torch not compiled with CUDA enabled`",
        "Another package asked for torch, and the resolver replaced the CUDA build by a CPU build.",
        "Install the CUDA build of torch again.",
    ),
    Fault(
        CPU_ONLY_BINARY,
        "A CPU-only extension on CUDA tensors",
        "`Could not run '{0.namespace}::{0.operator}' with arguments from the 'CUDA' backend`",
        "The package that is installed holds no CUDA kernels that this torch and GPU can use.",
        "Install a CUDA variant, or build the CUDA kernels here.",
        "GPU machine",
    ),
    Fault(
        PACKAGE_FILES,
        "Stale or duplicate files, or a source folder in the way",
        "`cannot import name '_C'`, or old behaviour after an upgrade, or `file too short`",
        "The binaries are missing, truncated, of another version than the Python files, or Python "
        "found a source folder before the installed package.",
        "Reinstall the package; start Python elsewhere than in the source folder.",
    ),
    Fault(
        TORCH_NOT_LOADED,
        "The extension was loaded before torch, or torch is missing",
        "`undefined symbol: THPVariableClass`, `libc10.so: cannot open shared object file`",
        "The libraries of torch are found only once `import torch` has loaded them.",
        "Import torch first ({0.distribution} does); install torch where it is missing.",
    ),
    Fault(
        SYSTEM_LIBRARIES,
        "libstdc++ or glibc too old",
        "``version `GLIBCXX_3.4.32' not found``, ``version `GLIBC_2.34' not found``",
        "The binary was built on a newer system than the one it runs on.",
        "In conda, update libstdcxx-ng; else take a build for this system, or build here.",
    ),
    Fault(
        NVCC_MISMATCH,
        "nvcc differs from torch's CUDA",
        "`The detected CUDA version (12.2) mismatches the version that was used to compile "
        "PyTorch`",
        "A build took an nvcc of another major than torch's.",
        "Name the right toolkit in CUDA_HOME, or install its nvcc.",
    ),
    Fault(
        TOOLCHAIN,
        "No toolkit, or a host compiler too new or too old",
        "`CUDA_HOME environment variable is not set`, `unsupported GNU version!`",
        "A build found no nvcc, no C++ compiler, or one that nvcc or torch's headers refuse.",
        "Install the compiler that the message names, or point CXX or CUDA_HOME at it.",
    ),
    Fault(
        BUILD_ISOLATION,
        "Build isolation",
        "`No module named 'torch'` while pip builds",
        "pip builds in an empty environment, where the torch that the build must fit is not.",
        "python -m pip install . --no-build-isolation",
    ),
    Fault(
        UNKNOWN_ARCH,
        "No GPU at build time, or an unknown architecture",
        "`IndexError` in the arch list, `Unknown CUDA arch`",
        "TORCH_CUDA_ARCH_LIST names what the toolkit does not know, or a build wanted to ask a "
        "GPU.",
        'Set TORCH_CUDA_ARCH_LIST to architectures the toolkit knows, e.g. "8.0;9.0+PTX".',
    ),
    Fault(
        REGISTERED_TWICE,
        "Registered twice; free-threaded Python",
        "`Only a single TORCH_LIBRARY can be used to register the namespace {0.namespace}`; a "
        "crash",
        "Two copies of the package are on the path and both were loaded into one process. Or "
        "Python is free-threaded (3.13t, 3.14t): an extension built for the ordinary Python, "
        "limited API or not, does not load there or crashes. {0.distribution} has no Python "
        "symbol, so the same files serve both.",
        "Uninstall one of the two copies; restart Python. On a free-threaded Python take a wheel "
        "whose name says so (cp314t), or the ordinary Python.",
    ),
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
