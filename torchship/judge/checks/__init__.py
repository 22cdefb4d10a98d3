"""The dimensions of a verdict: a function (binary, runtime) -> finding for each.

A function returns None if its dimension does not apply. None of them opens a file of the
machine: the facts were collected before.
"""

from collections.abc import Callable
from functools import partial

from ..records import BinaryRecord, Finding, Runtime
from . import cuda, host, libraries, loading, miscompiled, torch_abi

Check = Callable[[BinaryRecord, Runtime], Finding | None]

#: The first rejection is the cause that a user reads, so this order also ranks the causes: the
#: machine and its Python, torch, CUDA, libraries.
ALL: tuple[Check, ...] = (
    host.check_platform,
    host.check_page_size,
    host.check_file_system,
    host.check_python,
    torch_abi.check_installed_torch,
    torch_abi.check_torch_version,
    torch_abi.check_cxx_abi,
    torch_abi.check_registration,
    loading.check_first_library,
    partial(host.check_libstdcxx, "CXXABI"),
    host.check_glibc,
    partial(host.check_libstdcxx, "GLIBCXX"),
    cuda.check_cuda_build,
    cuda.check_driver,
    cuda.check_gpu_architecture,
    miscompiled.check_miscompiled,
    torch_abi.check_torch_symbols,
    libraries.check_libraries,
    libraries.check_symbols,
    *loading.CHECKS,
    torch_abi.check_vouched,
)
