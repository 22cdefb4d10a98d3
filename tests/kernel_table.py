"""The kernels' C interface, from its header, for tests that call kernels without torch."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import cffi
import torch

from lltm_conda.engine.builder import include_dirs

REPO = Path(__file__).resolve().parents[1]
HEADER = REPO / "csrc" / "kernels" / "lltm_kernels.h"
INCLUDES = [f"-I{folder}" for folder in include_dirs(REPO / "csrc")]
CODES = {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}
"""The numbers of `lltm_dtype`."""


@cache
def interface() -> cffi.FFI:
    """The types of the header."""
    command = ["cc", "-E", "-P", "-x", "c", *INCLUDES, str(HEADER)]
    preprocessed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ours = preprocessed[preprocessed.index("typedef void (*lltm_range_function)") :]
    ffi = cffi.FFI()
    without_bodies = re.sub(r"static inline [^{]*\{[^}]*\}", "", ours)  # as cdef demands
    ffi.cdef(without_bodies)
    ffi.cdef("const void* lltm_kernel_table(void);")
    return ffi


@cache
def table(path: Path) -> Any:  # noqa: ANN401 - cffi makes the type from the header
    """The functions of a kernels object."""
    library = interface().dlopen(str(path))  # which stays loaded: the package has it open
    return interface().cast("lltm_kernel_functions*", library.lltm_kernel_table())
