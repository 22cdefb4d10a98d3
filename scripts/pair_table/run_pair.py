"""One pair of the table: load a glue into the torch of this interpreter, and compute.

Runs in a process of its own. It imports only the definition of the cell from the package, so that
nothing is judged here. The last line printed is JSON: `{"outcome": ..., "detail": ...}`.

    python run_pair.py GLUE KERNELS
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import torch

os.environ["LLTM_CONDA_LOAD"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lltm_conda.reference import reference

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


def load(glue: str, kernels: str) -> None:
    torch.ops.load_library(glue)
    library, table = ctypes.CDLL(glue), ctypes.CDLL(kernels).lltm_kernel_table
    table.restype = ctypes.c_void_p
    library.lltm_attach_kernels.argtypes = [ctypes.c_void_p]
    library.lltm_attach_kernels.restype = ctypes.c_char_p
    refusal = library.lltm_attach_kernels(table())
    if refusal is not None:
        raise RuntimeError(refusal.decode())


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
    if gates.shape != (batch, 3, 11) or gates.dtype != dtype:
        raise AssertionError(f"gates: {gates.shape} {gates.dtype}")
    x, weights, bias, h, _ = values
    ones = torch.ones_like(new_h)
    grads = torch.ops.lltm.backward(ones, 2 * ones, None, x, weights, bias, h, new_cell, gates, 31)
    wanted = [*(value.detach() for value in expected), *exact_grads]
    pairs = list(zip((new_h, new_cell, *grads), wanted, strict=True))
    if any(ours.shape != theirs.shape for ours, theirs in pairs):
        raise AssertionError(f"shapes: {[tuple(ours.shape) for ours, _ in pairs]}")
    # What must be zero (the weights' gradient of an empty batch) is compared absolutely.
    return max(
        float((a.detach().double() - b).norm() / (b.norm() if b.any() else 1)) for a, b in pairs
    )


def main() -> tuple[str, str]:
    try:
        load(*sys.argv[1:3])
    except Exception as error:
        return "import error", f"{type(error).__name__}: {error.__cause__ or error}"
    worst = ""
    try:
        for dtype, tolerance in TOLERANCES.items():
            for batch in (5, 0, 300):
                found = difference(batch, dtype)
                if not found <= tolerance:
                    return "wrong result", f"{dtype}, batch {batch}: {found:.1e}"
                if dtype == torch.float64 and batch == 300:
                    worst = f"float64 {found:.1e}"
    except AssertionError as error:
        return "wrong result", str(error)
    except Exception as error:
        return "call error", f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    # A wrong argument must raise an exception that names it, across torch's C++ interface.
    bad = inputs(5, torch.float32)
    bad[1] = bad[1][:, :-1].contiguous()
    try:
        torch.ops.lltm.forward(*bad)
    except RuntimeError as error:
        if "weights" not in str(error):
            return "wrong result", f"the refusal does not name weights: {str(error)[:120]}"
        return "works", worst
    return "wrong result", "a wrong shape was not refused"


if __name__ == "__main__":
    outcome, detail = main()
    print("\n" + json.dumps({"outcome": outcome, "detail": detail}), flush=True)
