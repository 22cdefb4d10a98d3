"""Options that trade time for memory change neither values nor gradients."""

from __future__ import annotations

import pytest
import torch
from layer_cases import RESULTS, TOLERANCE, Case, leaves, names, run
from op_cases import assert_agree, every_dtype, gradients, like

OPTIONS = [{"keep_cells": False}, {"checkpoint": 3}, {"checkpoint": 3, "keep_cells": False}]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


def results(case, layer, lengths=None):
    inputs = case.inputs(layer)
    outputs = run(layer, *inputs, lengths=lengths)
    return (*outputs, *gradients(outputs, leaves(layer, inputs), like(outputs)))


def with_options(case, layer, **options):
    first = layer.weights_l0
    other = case.layer(device=first.device, dtype=first.dtype, **options)
    other.load_state_dict(layer.state_dict())
    return other


@every_option
@every_dtype
@pytest.mark.parametrize("lengths", [None, (7, 2, 5)], ids=["rectangle", "packed"])
def test_options_change_nothing(device, options, dtype, lengths) -> None:
    case = Case(7, 3, 4, 6, layers=2, bidirectional=True)
    layer = case.layer(device=device, dtype=dtype)
    lengths = None if lengths is None else torch.tensor(lengths)
    want = results(case, layer, lengths)
    actual = results(case, with_options(case, layer, **options), lengths)
    leaf_names = names(layer, case.inputs(layer))
    assert_agree(actual, want, TOLERANCE[dtype], (*RESULTS, *leaf_names))


@every_dtype
@pytest.mark.parametrize("kernels", ["fused", "gemm"])
def test_cells_computed_again_are_the_same_bits_on_a_cpu(monkeypatch, kernels, dtype) -> None:
    monkeypatch.setenv("LLTM_LAYER_KERNELS", kernels)
    case = Case(200, 5, 4, 37)
    layer = case.layer(dtype=dtype)
    want = results(case, layer)
    actual = results(case, with_options(case, layer, keep_cells=False))
    for one, other in zip(actual, want, strict=True):
        assert torch.equal(one, other)


# Of 256 steps on a GPU, whose kernels carry float32 cells and round those that they keep.
AGAIN = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.mark.cuda
@every_dtype
def test_cells_computed_again_differ_by_rounding_on_cuda(dtype) -> None:
    """From the kept ones, over a long sequence, which adds up every difference."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    torch.manual_seed(0)
    case = Case(256, 9, 8, 136)
    layer = case.layer(device="cuda:0", dtype=dtype)
    inputs = case.inputs(layer)
    outputs = run(layer, *inputs)
    grads = like(outputs)
    from_kept_cells = gradients(outputs, leaves(layer, inputs), grads)
    other = with_options(case, layer, keep_cells=False)
    again = gradients(run(other, *inputs), leaves(other, inputs), grads)
    assert_agree(again, from_kept_cells, AGAIN[dtype], names(layer, inputs))


def kept_elements(layer, input) -> int:
    """Elements that one call keeps for backward, beyond parameters, inputs and outputs."""
    saved_storages = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved_storages.setdefault(t.untyped_storage().data_ptr(), t), lambda t: t
    ):
        output, (h_n, c_n) = layer(input)
    outside_storages = {
        t.untyped_storage().data_ptr() for t in (input, output, h_n, c_n, *layer.parameters())
    }
    return sum(
        t.untyped_storage().nbytes() // t.element_size()
        for pointer, t in saved_storages.items()
        if pointer not in outside_storages
    )


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 4), ({"keep_cells": False}, 3), ({"checkpoint": 10}, 0.5)],
    ids=str,
)
def test_what_is_kept_for_backward(device, options, most) -> None:
    case = Case(100, 8, 16, 32, given_state=False)
    layer = case.layer(device=device, **options)
    (input,) = case.inputs(layer)
    elements = kept_elements(layer, input)
    assert 0 < elements <= most * case.steps * case.batch * case.state
