"""One pair of the table: computes with a glue that this process has loaded beside its torch.

Imports only the definition of the cell from the package, so that nothing is judged here.
"""

import ctypes
import os
import sys
from pathlib import Path

import torch

os.environ["LLTM_CONDA_LOAD"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lltm_conda.reference import reference

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


def works(library: ctypes.CDLL) -> str:
    """Attaches the kernels beside the glue and computes; returns the float64 error as text.

    Raises AssertionError for a wrong result.
    """
    table = ctypes.CDLL(str(Path(library._name).with_name("kernels-cpu.so"))).lltm_kernel_table
    table.restype = ctypes.c_void_p
    library.lltm_attach_kernels.argtypes = [ctypes.c_void_p]
    library.lltm_attach_kernels.restype = ctypes.c_char_p
    refusal = library.lltm_attach_kernels(table())
    if refusal is not None:
        raise RuntimeError(refusal.decode())
    found = {}
    for dtype, tolerance in TOLERANCES.items():
        for batch in (5, 0, 300):
            found[dtype] = difference(batch, dtype)
            assert found[dtype] <= tolerance, f"{dtype}, batch {batch}: {found[dtype]:.1e}"
    # A wrong argument must raise an exception that names it, across torch's C++ interface.
    bad = inputs(5, torch.float32)
    bad[1] = bad[1][:, :-1].contiguous()
    try:
        torch.ops.lltm.forward(*bad)
    except RuntimeError as error:
        assert "weights" in str(error), f"the refusal does not name weights: {str(error)[:120]}"
        return f"float64 {found[torch.float64]:.1e}"
    raise AssertionError("a wrong shape was not refused")


def inputs(batch: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((batch, 7), (33, 18), (33,), (batch, 11), (batch, 11))
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def difference(batch: int, dtype: torch.dtype) -> float:
    """The largest relative error, as a norm, of the raw operators forward and backward."""
    values = inputs(batch, dtype)
    exact = [value.double().requires_grad_() for value in values]
    expected = reference(*exact)
    exact_grads = torch.autograd.grad(expected[0].sum() + 2 * expected[1].sum(), exact)
    new_h, new_cell, gates = torch.ops.lltm.forward(*values)
    assert gates.shape == (batch, 3, 11) and gates.dtype == dtype, f"{gates.shape} {gates.dtype}"
    x, weights, bias, h, _ = values
    ones = torch.ones_like(new_h)
    grads = torch.ops.lltm.backward(ones, 2 * ones, None, x, weights, bias, h, new_cell, gates, 31)
    wanted = [*(value.detach() for value in expected), *exact_grads]
    pairs = list(zip((new_h, new_cell, *grads), wanted, strict=True))
    assert [a.shape for a, _ in pairs] == [b.shape for _, b in pairs], "a wrong shape"
    # What must be zero (the weights' gradient of an empty batch) is compared absolutely.
    return max(
        float((a.detach().double() - b).norm() / (b.norm() if b.any() else 1)) for a, b in pairs
    )
