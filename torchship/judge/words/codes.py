"""A stable code for each kind of finding; docs/fails/codes describes each.

A new rule has its code beside it, such as TD509, with the sentences of its page; `rules.CODES` has
them all, and the list in docs/fails/codes/index.md shows which number is free.

A code keeps its meaning for ever: workflows and allow-lists name it. A kind that is no longer
found keeps its code, and no code is given twice.

TD1xx: torch and its ABI. TD2xx: files, packages and Python. TD3xx: the system. TD4xx: CUDA, driver
and GPU. TD5xx: what the dynamic linker looks up. TD6xx: caches of code compiled at run time. TD7xx:
packages around their binaries. TD8xx: compiling. TD9xx: the doctor itself.
"""

from __future__ import annotations

from ..project import Record
from . import faults
from .faults import Fault


class Code(str):
    """A code such as `TD110`, with what is the same for all findings that have it."""

    __slots__ = ("fault", "fix", "heading", "is_fatal_in_cache", "why")
    heading: str  #: of its page
    fault: Fault | None  #: one of `faults`
    #: Whether an object in a cache of compiled code is of no use with such a finding, so that the
    #: doctor offers to delete it. Not unless a code says so: it may be of use to another Python.
    is_fatal_in_cache: bool
    #: The sentences of its page; "" where the doctor has them in meanings.json.
    why: str
    fix: str

    def __new__(
        cls,
        code: str,
        heading: str,
        *,
        fault: Fault | None = None,
        is_fatal_in_cache: bool = False,
        why: str = "",
        fix: str = "",
    ) -> Code:
        self = super().__new__(cls, code)
        self.heading = heading
        self.fault = fault
        self.is_fatal_in_cache = is_fatal_in_cache
        self.why = why
        self.fix = fix
        return self


class Message(Record):
    """One kind of message that people see when an extension fails."""

    example: str  #: as users see it; the heading of its row in docs/fails
    code: Code
    pattern: str  #: a regular expression that finds it in a line
    #: One that must be found in another line, or in the same one; "" if the pattern says enough.
    also: str = ""


TORCH_MISSING = Code("TD101", "torch is not installed", fault=faults.TORCH_NOT_LOADED)
TORCH_DAMAGED = Code("TD102", "The torch installation is damaged", fault=faults.TORCH_NOT_LOADED)
TORCH_OF_ANOTHER_PYTHON = Code(
    "TD103", "This torch was built for another Python", fault=faults.TORCH_NOT_LOADED
)
TORCH_SHADOWED = Code(
    "TD104", "A file or folder named torch hides the installed torch", fault=faults.PACKAGE_FILES
)
TORCH_REQUIREMENTS = Code("TD105", "torch's own libraries have other versions than it requires")
TORCH_DOES_NOT_LOAD = Code("TD106", "import torch fails")
SECOND_TORCH = Code("TD107", "There is a second torch on the path")
BACKEND_FAILS = Code(
    "TD108", "import torch loads a backend of another package, and the backend fails"
)
OTHER_TORCH = Code(
    "TD110", "Built for another torch", fault=faults.TORCH_VERSION, is_fatal_in_cache=True
)
TORCH_TOO_OLD = Code(
    "TD111", "torch is older than the stable ABI that the binary needs", fault=faults.TORCH_VERSION
)
TORCH_NOT_MEASURED = Code(
    "TD112", "The class layout of this torch is not known", fault=faults.TORCH_VERSION
)
TARGET_UNKNOWN = Code(
    "TD113", "It is not known which torch the binary was built for", fault=faults.TORCH_VERSION
)
MAYBE_OTHER_TORCH = Code(
    "TD114", "Built for another torch, and may not work with this one", fault=faults.TORCH_VERSION
)
TORCH_LACKS_SYMBOLS = Code(
    "TD115",
    "torch lacks symbols that the binary needs",
    fault=faults.TORCH_VERSION,
    is_fatal_in_cache=True,
)
OTHER_CXX_ABI = Code(
    "TD116", "Built for the other C++ ABI", fault=faults.CXX_ABI, is_fatal_in_cache=True
)
WRONG_CXX_FLAG = Code(
    "TD117", "Compiled with a C++ ABI flag that its record does not name", fault=faults.CXX_ABI
)
CXX_ABI_UNKNOWN = Code("TD118", "The C++ ABI of this torch cannot be read", fault=faults.CXX_ABI)
REGISTERED_TWICE = Code(
    "TD119", "The operators are registered already", fault=faults.REGISTERED_TWICE
)
NO_FINGERPRINT = Code(
    "TD120", "The binary does not say which class layout it has", fault=faults.PACKAGE_FILES
)
TORCH_NEWER_THAN_TESTED = Code("TD121", "torch is newer than the newest that was tested")
VOUCHED = Code("TD122", "There is evidence which torch the binary was built for")
CPU_TENSORS_ALONE = Code("TD123", "This build of torch is supported only for CPU tensors")
SAME_LAYOUT = Code("TD125", "Built for another torch of the same class layout")
LOADED_BEFORE_TORCH = Code("TD126", "The extension was loaded before torch")
OPERATOR_MISSING = Code("TD127", "The library that registers an operator did not load")
NOT_LINKED = Code("TD128", "The binary is not linked with a library of torch that it uses")
SYMBOLS_NOT_LOOKED_UP = Code("TD124", "The symbols were not looked up in torch")

DAMAGED_FILE = Code(
    "TD201",
    "The file is damaged or not what its name says",
    fault=faults.PACKAGE_FILES,
    is_fatal_in_cache=True,
)
FILE_NOT_READABLE = Code("TD202", "This user cannot read the file", fault=faults.PACKAGE_FILES)
FILE_OF_ANOTHER_BUILD = Code(
    "TD203", "The file is left over from another version or package", fault=faults.PACKAGE_FILES
)
PACKAGE_FILES = Code("TD204", "The package lacks files that it was installed with")
SOURCE_FOLDER = Code("TD205", "A source folder hides the installed package")
CACHE_REFUSED = Code("TD206", "The folder of local builds is not safe to load from")
LOAD_FAILED = Code("TD208", "The binary was accepted, but did not load or work")
PATH_NOT_LOADABLE = Code("TD209", "The dynamic linker cannot use the path of the binary")
OTHER_PYTHON = Code("TD210", "Built for another Python", fault=faults.PACKAGE_FILES)
FREE_THREADED = Code(
    "TD211", "A limited-API module in a free-threaded Python", fault=faults.REGISTERED_TWICE
)
PYTHON_TOO_OLD = Code("TD212", "Python is older than the oldest that is supported")
MODULE_MISSING = Code("TD213", "A Python package that the binary imports is missing")
PYTHON_NOT_NAMED = Code(
    "TD214", "The file name does not say which Python the file is for", fault=faults.PACKAGE_FILES
)
VARIANT_UNKNOWN = Code("TD215", "A variant was requested that does not exist")
MODULE_RENAMED = Code(
    "TD216",
    "The file does not define the module that it is named after",
    fault=faults.PACKAGE_FILES,
)
LIBRARY_SHADOWED = Code(
    "TD217",
    "A file or folder hides a module of the standard library",
    fault=faults.PACKAGE_FILES,
)

OTHER_PLATFORM = Code(
    "TD301", "Built for another operating system or processor", is_fatal_in_cache=True
)
MUSL = Code("TD302", "Built for another C library (musl or glibc)", is_fatal_in_cache=True)
PAGE_SIZE = Code(
    "TD303", "Linked for smaller memory pages than this kernel has", fault=faults.SYSTEM_LIBRARIES
)
GLIBC_TOO_OLD = Code(
    "TD304", "The system's glibc is too old", fault=faults.SYSTEM_LIBRARIES, is_fatal_in_cache=True
)
LIBSTDCXX_TOO_OLD = Code(
    "TD305",
    "The system's libstdc++ is too old",
    fault=faults.SYSTEM_LIBRARIES,
    is_fatal_in_cache=True,
)
LIBSTDCXX_UNKNOWN = Code("TD306", "The version of libstdc++ is not known")
EXECUTABLE_STACK = Code(
    "TD307", "The binary requires an executable stack", fault=faults.SYSTEM_LIBRARIES
)
STATIC_TLS = Code(
    "TD308", "The binary needs static thread-local storage", fault=faults.SYSTEM_LIBRARIES
)
EXECUTION_FORBIDDEN = Code(
    "TD309",
    "The file system does not allow its files to be executed",
    fault=faults.PACKAGE_FILES,
    is_fatal_in_cache=True,
)
PROCESSOR_TOO_OLD = Code("TD310", "The processor lacks instructions that the binary uses")
LIMIT_REACHED = Code("TD311", "A limit of the shell or the job is too low")

CUDA_TORCH_NEEDED = Code(
    "TD401",
    "A CUDA extension with a CPU build of torch",
    fault=faults.CPU_TORCH_SWAPPED_IN,
    is_fatal_in_cache=True,
)
OTHER_CUDA = Code(
    "TD402",
    "Built for another CUDA version",
    fault=faults.CUDA_MAJOR,
    is_fatal_in_cache=True,
)
DRIVER_TOO_OLD = Code("TD403", "The NVIDIA driver is too old", fault=faults.DRIVER)
NO_DRIVER = Code("TD404", "No NVIDIA driver is installed", fault=faults.DRIVER)
GPU_ARCHITECTURE = Code(
    "TD405", "The binary has no code for this GPU", fault=faults.GPU_ARCHITECTURE
)
DRIVER_UNKNOWN = Code(
    "TD406", "It is not known which CUDA version the driver supports", fault=faults.CUDA_MAJOR
)
NO_CUDA_KERNELS = Code("TD407", "The extension has no CUDA kernels")
TORCH_LACKS_GPU = Code("TD408", "torch has no code for this GPU")
MISCOMPILED_GPU_CODE = Code("TD409", "GPU code from a compiler that is known to miscompile it")
NO_FILE_FOR_CUDA = Code("TD410", "The package has no file for torch's CUDA version")
DRIVER_NEWER_THAN_TORCH = Code(
    "TD411", "The kernels' CUDA is newer than torch's, and the driver's not"
)

LIBRARY_MISSING = Code(
    "TD501",
    "A library that the binary needs is missing",
    fault=faults.SYSTEM_LIBRARIES,
    is_fatal_in_cache=True,
)
SYMBOL_MISSING = Code(
    "TD502",
    "A symbol that the binary needs is missing",
    fault=faults.SYSTEM_LIBRARIES,
    is_fatal_in_cache=True,
)
LIBRARY_VERSION = Code(
    "TD503", "The version of a library does not fit the binary", fault=faults.SYSTEM_LIBRARIES
)
LIBRARY_OF_TORCH_MISSING = Code(
    "TD504",
    "This torch has no library with the required name",
    fault=faults.TORCH_NOT_LOADED,
    is_fatal_in_cache=True,
)
LIBRARIES_NOT_LOOKED_FOR = Code("TD505", "The libraries were not looked up")
OTHER_LIBRARY_FIRST = Code(
    "TD506", "Another library with the same name is found first", fault=faults.SYSTEM_LIBRARIES
)
LOADED_BY_PYTHON = Code("TD507", "The package loads a library itself before the binary")
LIBRARY_REFUSED = Code(
    "TD508", "A file with the name of a library is not a library", fault=faults.PACKAGE_FILES
)

STALE_LOCK = Code("TD601", "A lock that a killed build left behind")
STALE_BUILD = Code("TD602", "A cached build that does not fit")
CACHE_CLOSED = Code("TD603", "A cache that this user cannot read or write")

PURE_PYTHON = Code("TD701", "The package has no binary, and needs none")
COMPILES_AT_FIRST_USE = Code("TD702", "The package compiles its code at first use")
WITHOUT_ITS_OPS = Code("TD703", "The package was installed without its binaries")
FALLS_BACK = Code("TD704", "The package silently falls back to slower code")
NUMPY_1_TORCH = Code("TD705", "A torch that was built for NumPy 1, with NumPy 2")
PACKAGE_OF_ANOTHER_PYTHON = Code("TD706", "A package for another Python is installed here")
REQUIREMENT_NOT_MET = Code("TD707", "What the package requires is missing or has another version")
NO_FILE_FOR_TORCH = Code("TD708", "The package has no file for this torch")
HIDDEN_COPY = Code("TD709", "A copy of the package that Python never imports")
WRITTEN_FOR_ANOTHER_TORCH = Code("TD710", "The package's Python was written for another torch")
OPTIONAL_PART = Code("TD711", "A part of the package does not work here, and is optional")
NAME_ALONE = Code("TD712", "A placeholder, or another project of that name")
PYTHON_TOLD = Code("TD713", "A variable of the environment keeps the package from being imported")
CLASH = Code("TD714", "Two packages work alone, and not both in one process")
INDEX_NOT_REACHED = Code("TD715", "An index of packages cannot be reached")

NVCC_MISMATCH = Code("TD801", "nvcc's CUDA version differs from torch's")
NO_TOOLKIT = Code("TD802", "No CUDA toolkit was found")
HOST_COMPILER = Code("TD803", "The host compiler is missing, or nvcc or torch does not support it")
CXX_STANDARD = Code("TD804", "torch's headers need a newer C++ standard")
BUILD_ISOLATION = Code("TD805", "The build cannot see the installed torch")
UNKNOWN_ARCHITECTURE = Code("TD806", "An unknown GPU architecture, or no GPU at build time")
NO_NINJA = Code("TD807", "ninja is missing")
BUILD_MEMORY = Code("TD808", "The build runs out of memory")

BUDGET_SPENT = Code("TD901", "The check was stopped, because it takes too long")
STALE_ALLOWANCE = Code("TD902", "An entry of the allow-list that no longer occurs")
MESSAGE_UNKNOWN = Code("TD903", "A message that the doctor does not know")
TOO_LARGE = Code("TD904", "The file costs too much to read")
IMPORT_DOES_NOT_END = Code("TD905", "The import did not end in time")
REASON_NOT_KNOWN = Code("TD906", "It fails, and the reason is not known")

#: What is found of an object's later life: it is loaded all the same.
RUN_LATER: frozenset[Code] = frozenset(
    {
        DRIVER_TOO_OLD,
        GPU_ARCHITECTURE,
        NO_CUDA_KERNELS,
        TORCH_LACKS_GPU,
        MISCOMPILED_GPU_CODE,
        NUMPY_1_TORCH,
    }
)

#: Notes with these codes say on what an acceptance rests. Who sees an object work need not know it.
GROUNDS: frozenset[Code] = frozenset(
    {
        VOUCHED,
        SAME_LAYOUT,
        LOADED_BY_PYTHON,
        LIBSTDCXX_UNKNOWN,
        DRIVER_NEWER_THAN_TORCH,
    }
)

#: The codes of this module, by their names such as `TD110`.
ALL: dict[str, Code] = {code: code for code in globals().values() if isinstance(code, Code)}
