"""The plain-PyTorch definition, against the formulas written out with Python floats."""

from __future__ import annotations

import math

import pytest
import torch
from op_cases import assert_agree, every_dtype, make_inputs

import lltm_conda


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def elu(z: float) -> float:
    return z if z > 0 else math.expm1(z)


@pytest.mark.parametrize("bias_rows", [False, True])
def test_reference_is_the_written_definition(bias_rows: bool) -> None:
    inputs = make_inputs(3, 2, 4, bias_rows=bias_rows)
    x, w, b, h, c = (t.tolist() for t in inputs)
    b = b[0] if bias_rows else b
    state = 4
    want_h = torch.empty(3, 4).double()
    want_cell = torch.empty(3, 4).double()
    for n in range(3):
        row = h[n] + x[n]
        z = [sum(p * q for p, q in zip(row, w[k], strict=True)) + b[k] for k in range(3 * state)]
        for s in range(state):
            cell = c[n][s] + elu(z[2 * state + s]) * sigmoid(z[s])
            want_cell[n, s] = cell
            want_h[n, s] = math.tanh(cell) * sigmoid(z[state + s])
    assert_agree(lltm_conda.reference(*inputs), (want_h, want_cell), 1e-14, ("new_h", "new_cell"))


@every_dtype
def test_reference_keeps_the_dtype(dtype: torch.dtype) -> None:
    assert {t.dtype for t in lltm_conda.reference(*make_inputs(dtype=dtype))} == {dtype}


def test_reference_is_twice_differentiable() -> None:
    inputs = make_inputs(2, 2, 2, requires_grad=True)
    assert torch.autograd.gradgradcheck(lltm_conda.reference, inputs)
