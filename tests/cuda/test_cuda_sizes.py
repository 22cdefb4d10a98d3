"""Sizes at which grids, blocks and 32-bit indices end."""

from __future__ import annotations

import pytest
import torch
from op_cases import (
    NAMES,
    TOLERANCE,
    assert_agree,
    every_dtype,
    like,
    make_inputs,
    through_function,
)

import lltm_conda

pytestmark = pytest.mark.cuda

RESULTS = ("new_h", "new_cell")


def agrees_with_reference_on_the_gpu(inputs, tolerance) -> None:
    """The oracle in float64 on the GPU: a CPU would need minutes for these sizes."""
    exact = [t.detach().double().requires_grad_() for t in inputs]
    outputs = through_function(*inputs)
    expected = lltm_conda.reference(*exact)
    incoming = like(outputs)
    assert_agree(outputs, expected, tolerance, RESULTS)
    actual = torch.autograd.grad(outputs, inputs, incoming)
    want = torch.autograd.grad(expected, exact, [g.double() for g in incoming])
    assert_agree(actual, want, tolerance, NAMES)


@every_dtype
@pytest.mark.parametrize("batch", [65_535, 65_536, 70_001, 1_050_000])
def test_batches_beyond_the_limit_of_a_grid(gpu, dtype, batch) -> None:
    inputs = make_inputs(batch, 2, 3, dtype=dtype, device=gpu, requires_grad=True)
    # A bias gradient sums a million terms: rounding grows with its square root.
    tolerance = TOLERANCE[dtype] * (10 if dtype == torch.float32 else 1)
    agrees_with_reference_on_the_gpu(inputs, tolerance)


@pytest.mark.parametrize("state", [1, 31, 32, 33, 63, 65, 127, 255, 256, 257, 1023, 1025])
@pytest.mark.parametrize("batch", [1, 7, 33])
def test_states_either_side_of_a_block(gpu, batch, state) -> None:
    inputs = make_inputs(batch, 5, state, device=gpu, requires_grad=True)
    agrees_with_reference_on_the_gpu(inputs, 1e-12)


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, 31, 33, 1000])
def test_batches_either_side_of_a_strip_of_the_bias_gradient(gpu, batch) -> None:
    inputs = make_inputs(batch, 3, 11, device=gpu, requires_grad=True)
    agrees_with_reference_on_the_gpu(inputs, 1e-12)


@every_dtype
def test_empty_batch_launches_nothing_and_leaves_no_error(gpu, dtype) -> None:
    inputs = make_inputs(0, 3, 5, dtype=dtype, device=gpu, requires_grad=True)
    outputs = through_function(*inputs)
    torch.autograd.backward(outputs, like(outputs))
    torch.cuda.synchronize()
    assert not inputs.weights.grad.any() and not inputs.bias.grad.any()


GIB = 2**30
TAIL = 1000


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < 40 * GIB,
    reason="needs a GPU of 40 GiB",
)
def test_more_gate_elements_than_32_bits_can_index(gpu) -> None:
    state = 64
    features = 1
    dtype = torch.float16
    batch = 2**31 // (3 * state) + 2 * TAIL
    assert batch * 3 * state > 2**31
    small = make_inputs(TAIL, features, state, dtype=dtype, device=gpu)
    rows = {}
    for name in ("input", "old_h", "old_cell"):
        tail = getattr(small, name)
        rows[name] = torch.zeros(batch, tail.shape[1], dtype=dtype, device=gpu)
        rows[name][-TAIL:] = tail
    inputs = small._replace(**rows)

    results = torch.ops.lltm.forward(*inputs)
    want = torch.ops.lltm.forward(*small)
    assert results[2].numel() > 2**31
    close = {"rtol": 2e-3, "atol": 2e-3}  # another GEMM kernel: a float16 rounding apart
    for name, actual, exact in zip((*RESULTS, "gates"), results, want, strict=True):
        torch.testing.assert_close(actual[-TAIL:], exact, **close, msg=f"{name} of the last rows")
        # All rows before the tail are alike: an index that wrapped would have written elsewhere.
        first = actual[0].expand(TAIL, *actual.shape[1:])
        torch.testing.assert_close(actual[-2 * TAIL : -TAIL], first, **close, msg=name)

    incoming = torch.zeros_like(results[0])
    incoming[-TAIL:] = like(small)[3]
    saved = (inputs.input, inputs.weights, inputs.bias, inputs.old_h, results[1], results[2])
    actual_gradients = torch.ops.lltm.backward(incoming, None, None, *saved, 31)
    saved = (small.input, small.weights, small.bias, small.old_h, want[1], want[2])
    expected = torch.ops.lltm.backward(incoming[-TAIL:], None, None, *saved, 31)
    for name, actual, exact in zip(NAMES, actual_gradients, expected, strict=True):
        if actual.shape[0] == batch:
            assert not actual[:-TAIL].any(), f"gradient of {name} before the tail"
            actual = actual[-TAIL:]
        assert_agree([actual], [exact], TOLERANCE[dtype], [f"gradient of {name}"])
