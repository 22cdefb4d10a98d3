"""Numerical checks of derivatives, of first and second order."""

from __future__ import annotations

import pytest
import torch
from layer_cases import RESULTS, Case, leaves, loop, run
from op_cases import assert_agree, like
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import lltm_conda
from lltm_conda.layer_functions import lltm_sequence


def as_function(layer, lengths=None):
    keys = [name for name, _ in layer.named_parameters()]

    def call(input, h_0, c_0, *parameters):
        values = dict(zip(keys, parameters, strict=True))
        with torch.nn.utils.stateless._reparametrize_module(layer, values):
            return run(layer, input, h_0, c_0, lengths)

    return call


OPTIONS = [{}, {"keep_cells": False}, {"checkpoint": 2}]


def second_derivatives(function, inputs) -> bool:
    """Of a random projection, which is wrong if any entry is: the whole Jacobian takes a hundred
    times as long."""
    return gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("check", [gradcheck, second_derivatives])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_derivatives(device, check, options, bias) -> None:
    case = Case(3, 2, 2, 3, bias=bias, bidirectional=True)
    layer = case.layer(device=device, dtype=torch.float64, **options)
    assert check(as_function(layer), leaves(layer, case.inputs(layer)))


@pytest.mark.parametrize("check", [gradcheck, second_derivatives])
def test_derivatives_of_packed_sequences(device, check) -> None:
    case = Case(3, 2, 2, 3, bidirectional=True)
    layer = case.layer(device=device, dtype=torch.float64)
    lengths = torch.tensor([2, 3])
    assert check(as_function(layer, lengths), leaves(layer, case.inputs(layer)))


@pytest.mark.parametrize("stacked", [False, True], ids=["(B, S)", "(1, B, S)"])
@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_the_raw_op(device, reverse, stacked) -> None:
    case = Case(3, 2, 2, 3)
    layer = case.layer(device=device, dtype=torch.float64)
    input, h_0, c_0 = (t.detach() for t in case.inputs(layer))
    tensors = (
        input,
        layer.weights_l0,
        layer.bias_l0,
        *(t if stacked else t[0] for t in (h_0, c_0)),
    )
    tensors = tuple(t.detach().clone().requires_grad_() for t in tensors)

    def op(*tensors):
        output, h, c, _, cells = torch.ops.lltm.layer_forward(*tensors, reverse, True, False)
        return output, h, c, cells

    assert gradcheck(op, tensors)
    assert second_derivatives(op, tensors)


@pytest.mark.parametrize("options", [{}, {"keep_cells": False}, {"bias": False}], ids=str)
def test_second_derivatives_through_final_states_without_initial_ones(device, options) -> None:
    layer = lltm_conda.LLTMLayer(2, 3, device=device, dtype=torch.float64, **options)
    input = torch.randn(3, 2, 2, device=device, dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(lambda x: layer(x)[1], input)


@pytest.mark.parametrize("given_state", [False, True])
def test_final_states_may_be_changed_in_place(device, given_state) -> None:
    case = Case(3, 2, 2, 3, given_state=given_state)
    layer = case.layer(device=device, dtype=torch.float64)
    inputs = case.inputs(layer)

    def slopes(double) -> tuple[torch.Tensor, ...]:
        _, (h_n, c_n) = layer(inputs[0], inputs[1:] or None)
        return torch.autograd.grad(double(h_n).sum() + double(c_n).sum(), inputs)

    actual = slopes(lambda state: state.mul_(2))
    want = slopes(lambda state: state * 2)
    torch.testing.assert_close(actual, want)


@pytest.mark.parametrize("keep_cells", [True, False])
def test_zero_tensors_as_states_and_gradients(device, keep_cells) -> None:
    shapes = ((3, 2, 2), (9, 5), (9,))
    tensors = [torch.randn(shape, device=device, dtype=torch.float64) for shape in shapes]
    tensors = [t.requires_grad_() for t in tensors]
    results = {}
    for make in (torch.zeros, torch._efficientzerotensor):
        state, sequence = (
            make(shape, device=device, dtype=torch.float64) for shape in ((2, 3), (3, 2, 3))
        )
        outputs = lltm_sequence(*tensors, state, state, keep_cells=keep_cells)[:3]
        incoming = (sequence, torch.ones_like(outputs[1]), state)
        results[make] = (*outputs, *torch.autograd.grad(outputs, tensors, incoming))
    for actual, want in zip(*results.values(), strict=True):
        torch.testing.assert_close(actual, want, rtol=1e-12, atol=1e-14)


def test_gates_of_the_raw_op_have_no_derivative(device) -> None:
    weights = torch.randn(9, 5, device=device, requires_grad=True)
    *_, gates, _ = torch.ops.lltm.layer_forward(
        input=torch.randn(3, 2, 2, device=device),
        weights=weights,
        bias=None,
        initial_h=None,
        initial_cell=None,
        reverse=False,
        keep_cells=True,
        allow_tf32=False,
    )
    assert not gates.requires_grad


def test_the_raw_backward_op_says_where_second_derivatives_are(device) -> None:
    x = torch.randn(3, 2, 2, device=device)
    weights = torch.randn(9, 5, device=device)
    output, _, _, gates, cells = torch.ops.lltm.layer_forward(
        input=x,
        weights=weights,
        bias=None,
        initial_h=None,
        initial_cell=None,
        reverse=False,
        keep_cells=True,
        allow_tf32=False,
    )
    found = torch.ops.lltm.layer_backward(
        torch.ones_like(output).requires_grad_(),
        *(None, None, None, x, weights, None, None, None, output, gates, cells, 3, False, False),
    )
    with pytest.raises(NotImplementedError, match=r"torch\.ops\.lltm\.layer_forward"):
        found[0].sum().backward()


def test_gradients_of_the_mean_penalty_train(device) -> None:
    # A gradient penalty is the common use of second derivatives.
    case = Case(4, 3, 2, 5, given_state=False)
    layer = case.layer(device=device, dtype=torch.float64)
    (input,) = case.inputs(layer)
    (slope,) = torch.autograd.grad(layer(input)[0].sum(), input, create_graph=True)
    actual = torch.autograd.grad(slope.square().sum(), layer.weights_l0)[0]

    def of_the_loop(x):
        h = c = x.new_zeros(case.batch, case.state)
        total = 0
        for step in x.unbind():
            h, c = lltm_conda.reference(step, layer.weights_l0, layer.bias_l0, h, c)
            total = total + h.sum()
        return total

    (slope,) = torch.autograd.grad(of_the_loop(input), input, create_graph=True)
    want = torch.autograd.grad(slope.square().sum(), layer.weights_l0)[0]
    torch.testing.assert_close(actual, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"keep_cells": False}, {"checkpoint": 2}], ids=str)
@pytest.mark.parametrize("recording", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "trained"])
def test_dual_tensors(device, options, recording, frozen) -> None:
    case = Case(layers=2, bidirectional=True)
    layer = case.layer(device=device, dtype=torch.float64, **options).requires_grad_(not frozen)
    inputs = [tensor.detach() for tensor in case.inputs(layer)]
    tangents = []
    for function in (run, loop):
        with forward_ad.dual_level(), torch.set_grad_enabled(recording):
            duals = [forward_ad.make_dual(t, t.cos()) for t in inputs]
            tangents.append([forward_ad.unpack_dual(t).tangent for t in function(layer, *duals)])
    assert_agree(*tangents, 1e-12, RESULTS)


def test_tangents_of_incoming_gradients(device) -> None:
    case = Case()
    layer = case.layer(device=device, dtype=torch.float64)
    inputs = case.inputs(layer)
    tangents = []
    for function in (run, loop):
        with forward_ad.dual_level():
            outputs = function(layer, *inputs)
            incoming = [forward_ad.make_dual(t, 3 * t) for t in like(outputs)]
            slopes = torch.autograd.grad(outputs, inputs, incoming)
            tangents.append([forward_ad.unpack_dual(slope).tangent for slope in slopes])
    assert_agree(*tangents, 1e-12, ("input", "h_0", "c_0"))
