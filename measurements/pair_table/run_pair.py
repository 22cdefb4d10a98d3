"""Runs one pair of the table: computes with the glue that this process has loaded beside torch.

The caller has this folder and the checkout on the path. LLTM_CONDA_LOAD=0 keeps the package's
loader idle, so no checker rejects the glue.
"""

import ctypes
import os
from pathlib import Path

import torch

os.environ["LLTM_CONDA_LOAD"] = "0"

TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 3e-2}


def works(library: ctypes.CDLL) -> str:
    """Attaches the kernels to the glue and computes; returns a text with batch 300's float64 error.

    Raises AssertionError if a result or a refusal is wrong, RuntimeError if the kernels do
    not fit.
    """
    table = ctypes.CDLL(str(Path(library._name).with_name("kernels-cpu.so"))).lltm_kernel_table
    table.restype = ctypes.c_void_p
    library.lltm_attach_kernels.argtypes = [ctypes.c_void_p]
    library.lltm_attach_kernels.restype = ctypes.c_char_p
    refusal = library.lltm_attach_kernels(table())
    if refusal is not None:
        raise RuntimeError(refusal.decode())
    from lltm_conda.engine.runtime.live_run import difference
    from lltm_conda.smoke import parts

    errors = {}
    for dtype, tolerance in TOLERANCES.items():
        for batch in (5, 0, 300):
            error = difference(parts(batch, 7, 11), "cpu", dtype)
            assert error <= tolerance, f"{dtype}, batch {batch}: {error:.1e}"
            errors[dtype] = error
    # An exception that names the wrong argument must pass through torch's C++ interface.
    x, weights, *rest = parts(5, 7, 11)[2]
    assert isinstance(weights, torch.Tensor)
    try:
        torch.ops.lltm.forward(x, weights[:, :-1].contiguous(), *rest)
    except RuntimeError as refused:
        assert "weights" in str(refused), f"the refusal does not name weights: {str(refused)[:120]}"
        return f"float64 {errors['float64']:.1e}"
    raise AssertionError("a wrong shape was not refused")
