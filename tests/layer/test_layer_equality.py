"""A layer equals a loop over the cell, in values and in gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_cases import (
    RESULTS,
    TOLERANCE,
    Case,
    agrees_with_the_loop,
    cases,
    leaves,
    loop,
    names,
    quick,
    run,
    seeds,
)
from op_cases import assert_agree, every_dtype, gradients, like


@quick
@given(case=cases(), seed=seeds)
def test_random_layers(device, case, seed) -> None:
    agrees_with_the_loop(case, case.layer(device=device, dtype=torch.float64), seed)


@quick
@given(case=cases(), seed=seeds, data=st.data())
def test_random_packed_sequences(device, case, seed, data) -> None:
    lengths = data.draw(
        st.lists(st.integers(1, case.steps), min_size=case.batch, max_size=case.batch)
    )
    layer = case.layer(device=device, dtype=torch.float64)
    agrees_with_the_loop(case, layer, seed, torch.tensor(lengths))


@every_dtype
@pytest.mark.parametrize("shape", [(12, 16, 32, 128), (20, 3, 7, 65), (6, 33, 5, 40)], ids=str)
def test_every_dtype_is_as_accurate_as_its_rounding(device, dtype, shape) -> None:
    case = Case(*shape)
    layer = case.layer(device=device, dtype=dtype)
    agrees_with_the_loop(case, layer, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("steps", [32, 63, 64, 130])
@pytest.mark.parametrize("given_state", [False, True], ids=["zeros", "state"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_gradients_added_up_over_parts_of_a_sequence(
    monkeypatch, device, steps, given_state, bidirectional
) -> None:
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "gemm")  # which takes long sequences in parts
    case = Case(steps, 2, 3, 5, bidirectional=bidirectional, given_state=given_state)
    agrees_with_the_loop(case, case.layer(device=device, dtype=torch.float64))


@pytest.mark.parametrize("result", range(3), ids=RESULTS)
@pytest.mark.parametrize("lengths", [None, (2, 5, 3)], ids=["rectangle", "packed"])
def test_gradients_through_one_result_alone(device, result, lengths) -> None:
    case = Case(layers=2, bidirectional=True)
    layer = case.layer(device=device, dtype=torch.float64)
    inputs = case.inputs(layer)
    options = {"lengths": None if lengths is None else torch.tensor(lengths)}
    actual = run(layer, *inputs, **options)[result]
    want = loop(layer, *inputs, **options)[result]
    (incoming,) = like((actual,))
    all_leaves = leaves(layer, inputs)
    assert_agree(
        gradients((actual,), all_leaves, (incoming,)),
        gradients((want,), all_leaves, (incoming,)),
        1e-12,
        names(layer, inputs),
    )


@pytest.mark.parametrize("expected", range(5), ids=("input", "h_0", "c_0", "weights", "bias"))
def test_each_gradient_alone(device, expected) -> None:
    case = Case()
    layer = case.layer(device=device, dtype=torch.float64)
    inputs = case.inputs(layer)
    everything = leaves(layer, inputs)
    want = gradients(loop(layer, *inputs), everything, like(loop(layer, *inputs)))[expected]
    for k, leaf in enumerate(everything):
        leaf.requires_grad_(k == expected)
    outputs = run(layer, *inputs)
    (actual,) = torch.autograd.grad(outputs, everything[expected], like(outputs))
    assert_agree((actual,), (want,), 1e-12, ("gradient",))


def test_two_threads_give_the_bits_of_one() -> None:
    case = Case(9, 21, 13, 37)
    layer = case.layer(dtype=torch.float32)
    inputs = case.inputs(layer)
    threads = torch.get_num_threads()
    by_threads = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            outputs = run(layer, *inputs)
            by_threads.append((*outputs, *gradients(outputs, leaves(layer, inputs), like(outputs))))
    finally:
        torch.set_num_threads(threads)
    for one, two, name in zip(*by_threads, (*RESULTS, *names(layer, inputs)), strict=True):
        assert torch.equal(one, two), name
