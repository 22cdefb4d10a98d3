"""Forward results on every device, in every dtype, through every entry point."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from op_cases import (
    SMALLEST_SCALE,
    TOLERANCE,
    assert_agree,
    every_dtype,
    every_entry,
    in_float64,
    make_inputs,
    quick,
    reference_gates,
    reference_with_gates,
    seeds,
    shapes,
    through_function,
)

import lltm_conda

RESULTS = ("new_h", "new_cell")


@every_entry
@every_dtype
@quick
@given(shape=shapes(), seed=seeds)
def test_forward_agrees_with_float64_reference(device, entry, dtype, shape, seed) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=device, seed=seed)
    want = lltm_conda.reference(*in_float64(inputs))
    assert_agree(entry(*inputs), want, TOLERANCE[dtype], RESULTS, SMALLEST_SCALE)


@every_dtype
@pytest.mark.parametrize("shape", [(16, 32, 128), (33, 17, 29), (1, 64, 65), (257, 3, 31)])
def test_forward_relative_norm_at_fixed_shapes(device, dtype, shape) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=device)
    want = lltm_conda.reference(*in_float64(inputs))
    assert_agree(through_function(*inputs), want, TOLERANCE[dtype], RESULTS)


@every_entry
@every_dtype
def test_results_have_the_dtype_device_and_shape_of_the_state(device, entry, dtype) -> None:
    inputs = make_inputs(dtype=dtype, device=device)
    for result in entry(*inputs):
        assert (result.dtype, result.device, result.shape) == (dtype, device, inputs.old_h.shape)
        assert result.is_contiguous()


@every_dtype
@quick
@given(shape=shapes(), seed=seeds)
def test_gates_are_the_pre_activations(device, dtype, shape, seed) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=device, seed=seed)
    gates = torch.ops.lltm.forward(*inputs)[2]
    want = reference_gates(*in_float64(inputs))
    assert gates.dtype == dtype and gates.is_contiguous()
    assert_agree([gates], [want], TOLERANCE[dtype], ["gates"], SMALLEST_SCALE)


@every_dtype
def test_raw_op_agrees_in_all_three_results(device, dtype) -> None:
    inputs = make_inputs(33, 17, 29, dtype=dtype, device=device)
    want = reference_with_gates(*in_float64(inputs))
    assert_agree(torch.ops.lltm.forward(*inputs), want, TOLERANCE[dtype], (*RESULTS, "gates"))


@every_entry
def test_bias_of_one_row_is_the_same_bias(device, entry) -> None:
    inputs = make_inputs(device=device)
    row = inputs._replace(bias=inputs.bias.reshape(1, -1))
    for actual, want in zip(entry(*row), entry(*inputs), strict=True):
        assert torch.equal(actual, want)


@every_entry
@every_dtype
def test_empty_batch_gives_empty_results(device, entry, dtype) -> None:
    new_h, new_cell = entry(*make_inputs(0, dtype=dtype, device=device))
    assert new_h.shape == new_cell.shape == (0, 5)


@every_entry
def test_no_input_features_leaves_the_recurrence(device, entry) -> None:
    inputs = make_inputs(3, 0, 5, device=device)
    want = lltm_conda.reference(*in_float64(inputs))
    assert_agree(entry(*inputs), want, 1e-12, RESULTS)


@every_entry
def test_same_inputs_give_the_same_bits(device, entry) -> None:
    inputs = make_inputs(33, 17, 29, dtype=torch.float32, device=device)
    for first, second in zip(entry(*inputs), entry(*inputs), strict=True):
        assert torch.equal(first, second)


def test_all_entries_give_the_same_bits(device) -> None:
    inputs = make_inputs(33, 17, 29, dtype=torch.float32, device=device)
    want = torch.ops.lltm.forward(*inputs)[:2]
    for actual in (
        lltm_conda.lltm(*inputs),
        lltm_conda.LLTMFunction.apply(*inputs),
        lltm_conda.lltm(*(t.requires_grad_() for t in make_like(inputs))),
    ):
        assert all(torch.equal(g, w) for g, w in zip(actual, want, strict=True))


def make_like(tensors):
    return [t.detach().clone() for t in tensors]


@every_entry
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_no_graph_is_recorded_without_grad(device, entry, guard) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    with guard():
        results = entry(*inputs)
    assert not any(t.requires_grad for t in results)
