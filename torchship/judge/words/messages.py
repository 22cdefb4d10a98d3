"""The messages that people see when an extension fails, and the code of what each means.

The one table for the loader, which names the class of a fault, and for the doctor, which explains
what somebody pasted. The messages of a rule with a code of its own are in its record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from ..rules import RULES
from . import codes, faults
from .codes import Code, Message
from .faults import Fault

#: Of a message or a log: more is cut.
MAX_INPUT = 1 << 20
#: Of one line, so that no pattern looks for long at a hostile one.
MAX_LINE = 4000

#: The start of the names of torch's own libraries; `libtorchaudio` is not one of them.
_OF_TORCH = (
    r"\blib(?:torch|torch_cpu|torch_cuda\w*|torch_python|torch_hip|torch_xpu|torch_nvrtc"
    r"|torch_global_deps|c10|c10_cuda|c10_hip|c10_xpu|shm|caffe2\w*)"
)
#: What an installer writes where it builds a package in an environment of its own.
_OF_BUILD = (
    r"Getting requirements to build|get_requires_for_build|subprocess-exited-with-error"
    r"|Failed to build|build_wheel|pip-build-env|builds-v0|Preparing metadata|build backend"
    r"|setup\.py egg_info|build dependenc|build isolation"
)
#: The line of torch in which its own libraries are loaded.
_IN_TORCH = r"/torch/__init__\.py\W|from torch\._C import|^import torch: "
_OF_NVIDIA = r"\blib(?:cu\w+|nccl|nv\w+)(?:-[0-9a-f]{8})?\.so[.\d]*"

#: The first that is found in any line counts, so the ones that say most come first.
MESSAGES: tuple[Message, ...] = (
    *(message for rule in RULES for message in rule.messages),
    # What the dynamic linker says of symbols. `code_of_symbol` tells those of torch apart.
    Message(
        "libtorch_cuda.so: undefined symbol: ncclCommRegister",
        codes.TORCH_REQUIREMENTS,
        _OF_TORCH + r"\.so: undefined symbol: ",
    ),
    Message(
        "undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
        codes.LIBRARY_VERSION,
        r"undefined symbol: \w+, version |not defined in file .{1,300} with link time reference",
    ),
    Message(
        "undefined symbol: THPVariableClass",
        codes.LOADED_BEFORE_TORCH,
        r"undefined symbol: THP",
    ),
    Message(
        "undefined symbol: _ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb",
        codes.NOT_LINKED,
        r"undefined symbol: _ZN8pybind116detail11type_casterIN(2at|3c10|5torch)",
    ),
    Message(
        "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs",
        codes.OTHER_CXX_ABI,
        r"undefined symbol: _Z\w*(2at|3c10|5torch)\w*(ESs|RKSs|7__cxx11)",
    ),
    Message(
        "undefined symbol: _ZN2at4_ops10zeros_like4callERKNS_6TensorE",
        codes.TORCH_LACKS_SYMBOLS,
        r"undefined symbol: _Z\w*(2at|3c10|5torch)",
    ),
    Message(
        "undefined symbol: aoti_torch_get_dim",
        codes.TORCH_TOO_OLD,
        r"undefined symbol: (aoti_torch_|torch_)",
    ),
    Message(
        "undefined symbol: PyUnicode_AsUTF8AndSize",
        codes.OTHER_PYTHON,
        r"undefined symbol: _?Py[A-Z_]",
    ),
    Message(
        "undefined symbol: cudnnGetVersion",
        codes.LIBRARY_VERSION,
        r"undefined symbol: (__nv|nv|nccl|cu[a-z]|cudnn|GOMP_|omp_|__kmpc|mkl_|iJIT_)",
    ),
    Message(
        "undefined symbol: _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv",
        codes.LIBSTDCXX_TOO_OLD,
        r"undefined symbol: (_ZNK?S[st]|_ZSt|_ZTI?NSt|__cxa_)",
    ),
    Message("undefined symbol: some_function", codes.SYMBOL_MISSING, r"undefined symbol: \S"),
    # Versions of libraries.
    Message(
        "version `GLIBC_2.34' not found",
        codes.GLIBC_TOO_OLD,
        r"version [`']?GLIBC_[\d.]+'? not found",
    ),
    Message(
        "version `GLIBCXX_3.4.32' not found",
        codes.LIBSTDCXX_TOO_OLD,
        r"version [`']?(GLIBCXX|CXXABI)_[\d.]+'? not found",
    ),
    Message(
        "version `libcublasLt.so.12' not found",
        codes.LIBRARY_VERSION,
        r"version [`'].{1,200}' not found",
    ),
    Message(
        "Inconsistency detected by ld.so: dl-lookup.c: 107: check_match: Assertion "
        "`version->filename == NULL || ! _dl_name_match_p (version->filename, map)' failed!",
        codes.LIBRARY_VERSION,
        r"check_match: Assertion .version->filename == NULL",
    ),
    Message(
        "cuDNN version incompatibility: PyTorch was compiled against (9, 10, 2) but found "
        "runtime version (9, 1, 0)",
        codes.LIBRARY_VERSION,
        r"cuDNN version incompatibility",
    ),
    # Files that the dynamic linker does not find or refuses.
    Message(
        "cannot open shared object file: Permission denied",
        codes.FILE_NOT_READABLE,
        r"cannot open shared object file: Permission denied",
    ),
    Message(
        "libc10_cuda.so: cannot open shared object file",
        codes.CUDA_TORCH_NEEDED,
        r"lib(torch_cuda|c10_cuda|c10_hip|torch_hip|torch_xpu)\.so: cannot open",
    ),
    Message(
        "libtorch_cuda_cu.so: cannot open shared object file",
        codes.LIBRARY_OF_TORCH_MISSING,
        r"libtorch_(cuda_\w+|cpu_\w+|nvrtc)\.so: cannot open",
    ),
    Message(
        "torch/_ops.py: libtorch_cpu.so: cannot open shared object file",
        codes.LIBRARY_OF_TORCH_MISSING,
        _OF_TORCH + r"\.so[.\d]*: cannot open",
        r"torch/_ops\.py\b",
    ),
    Message(
        "libc10.so: cannot open shared object file",
        codes.LOADED_BEFORE_TORCH,
        _OF_TORCH + r"\.so[.\d]*: cannot open",
    ),
    Message(
        "libcuda.so.1: cannot open shared object file",
        codes.NO_DRIVER,
        r"lib(cuda|nvidia-[\w-]+|nvcuvid)\.so[.\d]*: cannot open|libcuda\.so cannot found",
    ),
    Message(
        "import torch: libcudnn.so.9: cannot open shared object file",
        codes.TORCH_REQUIREMENTS,
        _OF_NVIDIA + r": cannot open",
        _IN_TORCH,
    ),
    Message(
        "libcudart.so.12: cannot open shared object file",
        codes.OTHER_CUDA,
        _OF_NVIDIA + r": cannot open",
    ),
    Message(
        "libpython3.10.so.1.0: cannot open shared object file",
        codes.OTHER_PYTHON,
        r"libpython\d\.\d+\w*\.so[.\d]*: cannot open",
    ),
    Message(
        "libavutil.so.58: cannot open shared object file",
        codes.LIBRARY_MISSING,
        r"\S{1,300}: cannot open shared object file",
    ),
    Message(
        "Could not load library libcudnn_cnn_infer.so.8",
        codes.LIBRARY_MISSING,
        r"Could not load library lib|Unable to load any of \{",
    ),
    Message("file too short", codes.DAMAGED_FILE, r"file too short|invalid ELF header"),
    Message(
        "cannot dynamically load position-independent executable",
        codes.DAMAGED_FILE,
        r"cannot dynamically load (?:position-independent )?executable",
    ),
    Message(
        "dynamic module does not define module export function (PyInit__C)",
        codes.MODULE_RENAMED,
        r"does not define (module export|init) function",
    ),
    Message(
        "wrong ELF class: ELFCLASS32", codes.OTHER_PLATFORM, r"wrong ELF class|Exec format error"
    ),
    Message(
        "ELF load command address/offset not page-aligned",
        codes.PAGE_SIZE,
        r"ELF load command (address/offset|alignment) not page-aligned",
    ),
    Message(
        "failed to map segment from shared object",
        codes.EXECUTION_FORBIDDEN,
        r"failed to map segment from shared object",
    ),
    Message(
        "cannot enable executable stack as shared object requires: Invalid argument",
        codes.EXECUTABLE_STACK,
        r"cannot enable executable stack",
    ),
    Message(
        "cannot allocate memory in static TLS block",
        codes.STATIC_TLS,
        r"cannot (allocate memory in|handle TLS data|load any more object with) static TLS",
    ),
    Message(
        "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized",
        codes.OTHER_LIBRARY_FIRST,
        r"OMP: Error #15|MKL_THREADING_LAYER=INTEL is incompatible",
    ),
    # CUDA, driver and GPU.
    Message(
        "CUDA capability sm_120 is not compatible with the current PyTorch installation",
        codes.TORCH_LACKS_GPU,
        r"is not compatible with the current PyTorch installation",
    ),
    Message(
        "no kernel image is available for execution on the device",
        codes.GPU_ARCHITECTURE,
        r"no kernel image is available|invalid device function|device kernel image is invalid",
    ),
    Message(
        "CUDA driver version is insufficient for CUDA runtime version",
        codes.DRIVER_TOO_OLD,
        r"driver version is insufficient|NVIDIA driver on your system is too old",
    ),
    Message(
        "the provided PTX was compiled with an unsupported toolchain",
        codes.DRIVER_TOO_OLD,
        r"unsupported toolchain|forward compatibility was attempted on non supported HW",
    ),
    Message(
        "Found no NVIDIA driver on your system",
        codes.NO_DRIVER,
        r"Found no NVIDIA driver|PTX JIT compiler library was not found",
    ),
    Message(
        "Torch not compiled with CUDA enabled",
        codes.CUDA_TORCH_NEEDED,
        r"not compiled with CUDA enabled|built for \S{1,200}\+cu\d+ \(you have \S{1,200}\+cpu\)",
    ),
    Message(
        "Could not run 'ns::op' with arguments from the 'CUDA' backend",
        codes.NO_CUDA_KERNELS,
        r"Could not run '\S{1,300}' with arguments from the 'CUDA' backend",
    ),
    Message(
        "Not compiled with GPU support",
        codes.NO_CUDA_KERNELS,
        r"Not compiled with (GPU|CUDA) support",
    ),
    Message(
        "Detected that PyTorch and torchvision were compiled with different CUDA major versions",
        codes.OTHER_CUDA,
        r"were compiled with different CUDA|has CUDA Version=",
    ),
    Message(
        "Configured CUDA binary not found at libbitsandbytes_cuda130.so",
        codes.NO_FILE_FOR_CUDA,
        r"Configured CUDA binary not found|Required library version not found: lib",
    ),
    Message(
        "Cannot find a build variant for this system",
        codes.NO_FILE_FOR_CUDA,
        r"(Cannot find|No) (a )?(compatible )?build variant",
    ),
    # Compiling.
    Message(
        "The detected CUDA version (12.2) mismatches the version that was used to compile PyTorch",
        codes.NVCC_MISMATCH,
        r"detected CUDA version \([\d.]{1,20}\) mismatches",
    ),
    Message(
        "CUDA_HOME environment variable is not set",
        codes.NO_TOOLKIT,
        r"CUDA_HOME environment variable is not set|nvcc: (command )?not found"
        r"|No such file or directory: '\S{0,300}nvcc'|cuda_runtime(_api)?\.h: No such file",
    ),
    Message(
        "unsupported GNU version! gcc versions later than 13 are not supported!",
        codes.HOST_COMPILER,
        r"unsupported (GNU|clang) version|Failed to find C compiler|Python\.h: No such file"
        r"|(command|execute) '(\S{0,100}[/-])?(gcc|g\+\+|cc|c\+\+)' ?(failed: No such|: No such)"
        r"|(gcc|g\+\+): (command )?not found",
    ),
    Message(
        "#error C++20 or later compatible compiler is required to use ATen.",
        codes.CXX_STANDARD,
        r"#error \"?C\+\+\d\d or later compatible compiler|You need C\+\+\d\d to compile PyTorch",
    ),
    Message(
        "Ninja is required to load C++ extensions",
        codes.NO_NINJA,
        r"Ninja is required to load C\+\+ extensions",
    ),
    Message(
        "g++: fatal error: Killed signal terminated program cc1plus",
        codes.BUILD_MEMORY,
        r"Killed signal terminated program|nvcc error *: .{1,200} died due to signal 9",
    ),
    Message(
        "Getting requirements to build wheel: ModuleNotFoundError: No module named 'torch'",
        codes.BUILD_ISOLATION,
        r"No module named '?torch'?(?![\w.])",
        _OF_BUILD,
    ),
    Message(
        "Unknown CUDA arch (12.1) or GPU not supported",
        codes.UNKNOWN_ARCHITECTURE,
        r"Unknown CUDA arch|Unsupported gpu architecture|arch_list\[-1\] \+= '\+PTX'",
    ),
    # torch itself, and Python.
    Message(
        "No module named 'torch._C'; 'torch' is not a package",
        codes.TORCH_SHADOWED,
        r"No module named 'torch\._C'|'torch' is not a package|partially initialized module 'torch'"
        r"|module 'torch' has no attribute '(Tensor|nn|__version__|cuda)'",
    ),
    Message(
        "cannot import name 'transforms' from 'torchvision' (unknown location)",
        codes.FILE_OF_ANOTHER_BUILD,
        r"cannot import name '\w+' from '[\w.]+' \(unknown location\)",
    ),
    Message(
        "module 'torch' has no attribute 'int1'",
        codes.WRITTEN_FOR_ANOTHER_TORCH,
        r"module 'torch(\.\w+)*' has no attribute|No module named 'torch\.\w"
        r"|cannot import name '(?!_C')\w+' from 'torch(\.\w+)*'",
    ),
    Message("No module named 'torch'", codes.TORCH_MISSING, r"No module named '?torch'?(?![\w.])"),
    Message(
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0",
        codes.NUMPY_1_TORCH,
        r"compiled using NumPy 1\.x cannot be run|_ARRAY_API not found|Numpy is not available",
    ),
    Message(
        "Failed to initialize NumPy: No module named 'numpy'",
        codes.MODULE_MISSING,
        r"Failed to initialize NumPy",
    ),
    Message(
        "No module named '_tkinter'",
        codes.MODULE_MISSING,
        r"No module named '(_bz2|_ctypes|_curses|_gdbm|_lzma|_sqlite3|_ssl|_?tkinter|_zstd"
        r"|readline|zlib)'",
    ),
    Message(
        "cannot import name 'TypeIs' from 'typing_extensions'",
        codes.REQUIREMENT_NOT_MET,
        r"cannot import name '\w+' from 'typing_extensions'|No module named 'typing_extensions'",
    ),
    Message(
        "Failed to load the backend extension: torch_npu",
        codes.BACKEND_FAILS,
        r"Failed to load the backend extension",
    ),
    Message(
        "The global interpreter lock (GIL) has been enabled to load module",
        codes.FREE_THREADED,
        r"global interpreter lock \(GIL\) has been enabled",
    ),
    # Packages.
    Message("cannot import name '_C'", codes.PACKAGE_FILES, r"cannot import name '_C'"),
    Message(
        "cannot import name 'FlashMHA' from 'flash_attn.flash_attention'",
        codes.REQUIREMENT_NOT_MET,
        r"cannot import name '\w+' from '\w+(\.\w+)*'",
    ),
    Message(
        "No module named 'flash_attn_2_cuda'",
        codes.WITHOUT_ITS_OPS,
        r"No module named '[\w.]*(_cuda|_ext|_C|_cpp)'",
    ),
    Message(
        "No module named 'triton.ops'",
        codes.REQUIREMENT_NOT_MET,
        r"No module named '\w+\.[\w.]+'",
    ),
    Message(
        "numpy.dtype size changed, may indicate binary incompatibility",
        codes.REQUIREMENT_NOT_MET,
        r"numpy\.\w+ size changed|numpy\.core\.multiarray failed to import"
        r"|module compiled against A[BP]I version",
    ),
    Message(
        "xFormers can't load C++/CUDA extensions. xFormers was built for: PyTorch 2.5.1+cu121",
        codes.FALLS_BACK,
        r"can't load C\+\+/CUDA extensions|Skipping import of cpp extensions",
    ),
    Message(
        "Python version mismatch: module was compiled for Python 3.10",
        codes.PACKAGE_OF_ANOTHER_PYTHON,
        r"module was compiled for Python \d",
    ),
    Message(
        "is not a supported wheel on this platform",
        codes.PACKAGE_OF_ANOTHER_PYTHON,
        r"is not a supported wheel on this platform",
    ),
    Message(
        "torchvision 0.20.1 requires torch==2.5.1, but you have torch 2.9.1 which is incompatible",
        codes.REQUIREMENT_NOT_MET,
        r"requires \S{1,200}, but you have|requires \S{1,200}, which is not installed",
    ),
    Message(
        "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken",
        codes.INDEX_NOT_REACHED,
        r"WARNING: Retrying \(Retry\(total=|Failed to fetch: `https?://",
    ),
    # Operators and caches.
    Message(
        "Only a single TORCH_LIBRARY can be used to register the namespace",
        codes.REGISTERED_TWICE,
        r"[Oo]nly a single TORCH_LIBRARY can be used|Tried to register"
        r"|same name and the same overload name multiple times",
    ),
    Message(
        'generic_type: type "Config" is already registered!',
        codes.REGISTERED_TWICE,
        r'generic_type: type "[^"]{1,200}" is already registered',
    ),
    Message(
        "operator torchvision::nms does not exist",
        codes.OPERATOR_MISSING,
        r"operator \S{1,200} does not exist|Couldn't load custom C\+\+ ops"
        r"|'_OpNamespace' '\S{1,200}' object has no attribute",
    ),
    Message(
        "PermissionError: [Errno 13] Permission denied: '/cache/torch_extensions'",
        codes.CACHE_CLOSED,
        r"Permission denied: '[^']{0,300}(torch_extensions|\.triton|huggingface)",
    ),
    Message(
        'File "torch/utils/file_baton.py", line 50, in wait',
        codes.STALE_LOCK,
        r"file_baton\.py",
    ),
    Message("Could not load this library: ", codes.LOAD_FAILED, r"Could not load this library"),
    Message("Segmentation fault (core dumped)", codes.OTHER_TORCH, r"Segmentation fault|^Aborted"),
)


#: The classes of codes that no rule of the judge has.
_CLASS_OF: dict[Code, Fault] = {
    codes.NO_CUDA_KERNELS: faults.CPU_ONLY_BINARY,
    codes.PACKAGE_FILES: faults.PACKAGE_FILES,
    codes.LOADED_BEFORE_TORCH: faults.TORCH_NOT_LOADED,
    codes.NVCC_MISMATCH: faults.NVCC_MISMATCH,
    codes.NO_TOOLKIT: faults.TOOLCHAIN,
    codes.HOST_COMPILER: faults.TOOLCHAIN,
    codes.BUILD_ISOLATION: faults.BUILD_ISOLATION,
    codes.UNKNOWN_ARCHITECTURE: faults.UNKNOWN_ARCH,
}


def lines_of(content: str) -> list[str]:
    """The lines of a message or a log, cut to what is looked at."""
    return [line[:MAX_LINE] for line in content[:MAX_INPUT].splitlines() if line.strip()]


def matches(lines: list[str]) -> Iterator[tuple[Message, str]]:
    """The messages that occur, each with its last line; the one that says most comes first."""
    for message in MESSAGES:
        search = _searching(message.pattern)
        line = next((line for line in reversed(lines) if search(line)), None)
        if line is not None and (not message.also or any(map(_searching(message.also), lines))):
            yield message, line


def classify(content: str) -> Fault | None:
    """The class of faults that an error text belongs to; None for an unknown text."""
    message, _ = next(matches(lines_of(content)), (None, ""))
    if message is None:
        return None
    return message.code.fault or _CLASS_OF.get(message.code)


@cache
def _searching(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


def symbol_in(line: str) -> str:
    """The undefined symbol that a line names, without its version; "" if it names none."""
    named = re.search(
        r"undefined symbol: ([\w$.]{1,1000})|symbol (\w{1,1000}) version \S+ not", line
    )
    return (named[1] or named[2]) if named else ""


def library_in(line: str) -> str:
    """The library in which a line misses a version of a symbol, such as `libnvJitLink.so.12`."""
    named = re.search(r"version (lib[\w.+-]{1,200}\.so[\w.]{0,40})", line)
    return named[1] if named else ""


def file_in(line: str) -> str:
    """The shared object that a line blames, as it is written; "" if it blames none."""
    start = r"(?:[A-Za-z_.]*(?:Error|Warning|Exception|lookup error): )?"
    name = r"(?P<file>[^\s'\"`:][^'\"`:]{0,1000}\.so(?:\.[\d.]+)?)"
    blamed = re.search(rf"{start}{name}: ", line) or re.search(
        rf"[ '\"`(]{name}['\"`)]", f" {line}"
    )
    return blamed["file"] if blamed else ""


def packages_in(lines: list[str]) -> list[str]:
    """The packages in whose files a traceback passes, innermost first."""
    paths = re.compile(r'File "[^"]{1,1000}/(?:site|dist)-packages/(\w{1,100})[/.]')
    return list(dict.fromkeys(m[1] for line in reversed(lines) if (m := paths.search(line))))


def sites_in(line: str) -> list[tuple[str, str]]:
    """(prefix, site folder) of the environment in whose packages a path in a line lies: a list of
    one, or empty."""
    site = re.search(r"/lib(?:64)?/python3(?:\.\d{1,3}t?)?/(?:site|dist)-packages(?=/)", line)
    if site is None:
        return []
    before = line[: site.start()]
    quoted = before.rpartition('File "')
    prefix = quoted[2] if quoted[1] else re.split(r"[\s'\"`(]", before)[-1]
    return [(prefix, f"{prefix}{site[0]}")] if prefix.startswith("/") else []
