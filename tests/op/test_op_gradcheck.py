"""Numerical checks of first, second and third derivatives."""

from __future__ import annotations

import pytest
import torch
from op_cases import (
    NAMES,
    assert_agree,
    every_entry,
    gradients,
    in_float64,
    like,
    make_inputs,
    reference_with_gates,
    saved_for_backward,
    through_function,
    through_raw_op,
)
from torch.autograd import gradcheck, gradgradcheck

import lltm_conda

bias_shapes = pytest.mark.parametrize("bias_rows", [False, True], ids=["bias (3S)", "bias (1, 3S)"])
batches = pytest.mark.parametrize("batch", [1, 3])


def small(device, batch=2, bias_rows=False, **options):
    # gradcheck rebuilds the sequence that it is given, so a plain tuple.
    options |= {"device": device, "bias_rows": bias_rows, "requires_grad": True}
    return tuple(make_inputs(batch, 2, 3, **options))


@every_entry
@batches
@bias_shapes
def test_gradcheck(device, entry, batch, bias_rows) -> None:
    assert gradcheck(entry, small(device, batch, bias_rows))


@every_entry
@bias_shapes
def test_gradgradcheck(device, entry, bias_rows) -> None:
    assert gradgradcheck(entry, small(device, bias_rows=bias_rows))


def test_gradcheck_of_all_three_results(device) -> None:
    assert gradcheck(torch.ops.lltm.forward, small(device))


def test_gradgradcheck_of_all_three_results(device) -> None:
    assert gradgradcheck(torch.ops.lltm.forward, small(device))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("entry", [through_function, through_raw_op], ids=lambda e: e.__name__)
def test_gradgradcheck_with_one_input_that_requires_grad(device, entry, name) -> None:
    inputs = make_inputs(2, 2, 3, device=device)
    getattr(inputs, name).requires_grad_()
    assert gradgradcheck(entry, inputs)


def test_gradcheck_with_batched_gradients(device) -> None:
    assert gradcheck(through_function, small(device), check_batched_grad=True)


@pytest.mark.parametrize("needs", [1, 2, 4, 8, 16, 31])
def test_gradcheck_of_the_backward_op(device, needs) -> None:
    inputs = small(device)
    results = [t.detach().requires_grad_() for t in torch.ops.lltm.forward(*inputs)]
    incoming = [g.requires_grad_() for g in like(results)]

    def backward(*tensors):
        slopes = torch.ops.lltm.backward(*tensors, needs)
        return tuple(f for bit, f in enumerate(slopes) if needs & (1 << bit))

    assert gradcheck(backward, (*incoming, *saved_for_backward(inputs, results)))


def directional_second(function, inputs, seed=5):
    """Gradients of <first derivatives, random vectors>."""
    outputs = function(*inputs)
    incoming = [t.requires_grad_() for t in like(outputs, seed)]
    first = gradients(outputs, inputs, incoming, create_graph=True)
    return gradients(first, [*inputs, *incoming], like(first, seed + 1))


@every_entry
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 7), (33, 17, 29)], ids=str)
def test_second_derivatives_agree_with_the_reference(device, entry, shape) -> None:
    inputs = make_inputs(*shape, device=device, requires_grad=True)
    actual = directional_second(entry, inputs)
    want = directional_second(lltm_conda.reference, in_float64(inputs))
    names = [*NAMES, "incoming gradient of new_h", "incoming gradient of new_cell"]
    assert_agree(actual, want, 1e-11, names)


def test_second_derivatives_through_the_gates_agree(device) -> None:
    inputs = make_inputs(5, 3, 7, device=device, requires_grad=True)
    actual = directional_second(torch.ops.lltm.forward, inputs)
    want = directional_second(reference_with_gates, in_float64(inputs))
    assert_agree(actual, want, 1e-11, [*NAMES, "grad_h", "grad_cell", "grad_gates"])


def test_second_derivatives_in_float32(device) -> None:
    inputs = make_inputs(16, 8, 32, device=device, dtype=torch.float32, requires_grad=True)
    actual = directional_second(through_function, inputs)
    want = directional_second(lltm_conda.reference, in_float64(inputs))
    assert_agree(actual, want, 1e-4, [*NAMES, "grad_h", "grad_cell"])


@every_entry
@pytest.mark.parametrize("used", [0, 1], ids=["new_h", "new_cell"])
def test_second_derivatives_through_one_result(device, entry, used) -> None:
    inputs = make_inputs(5, 3, 7, device=device, requires_grad=True)
    actual = directional_second(lambda *t: [entry(*t)[used]], inputs)
    want = directional_second(lambda *t: [lltm_conda.reference(*t)[used]], in_float64(inputs))
    assert_agree(actual, want, 1e-11, [*NAMES, "incoming gradient"])


@every_entry
def test_second_derivatives_where_elu_bends(device, entry) -> None:
    """At z = 0 both slopes and their derivatives are those of ``F.elu``."""
    inputs = make_inputs(5, 3, 7, device=device)
    inputs.weights[14:] = 0
    inputs.bias[14:] = 0
    inputs = type(inputs)(*(t.requires_grad_() for t in inputs))
    actual = directional_second(entry, inputs)
    want = directional_second(lltm_conda.reference, in_float64(inputs))
    assert_agree(actual, want, 1e-11, [*NAMES, "incoming gradient of h", "incoming gradient of c"])


@every_entry
def test_gradient_penalty_trains_like_the_reference(device, entry) -> None:
    """A WGAN-style penalty: silently wrong where a Function has no second derivative."""

    def penalty(function, inputs):
        x, w, b, h, c = inputs
        new_h, new_cell = function(x, w, b, h, c)
        (d_x,) = torch.autograd.grad(new_h.sum() + new_cell.square().sum(), x, create_graph=True)
        return (d_x.norm(dim=1) - 1).square().mean()

    inputs = make_inputs(device=device, requires_grad=True)
    exact = in_float64(inputs)
    actual = gradients(
        [penalty(entry, inputs)], inputs, [torch.ones((), dtype=torch.float64, device=device)]
    )
    want = gradients(
        [penalty(lltm_conda.reference, exact)], exact, [torch.ones((), dtype=torch.float64)]
    )
    assert_agree(actual, want, 1e-11, NAMES)


@every_entry
def test_third_derivatives_agree_with_the_reference(device, entry) -> None:
    def third(function, tensors):
        value = sum(t.square().sum() for t in function(*tensors))
        for _ in range(2):
            first = torch.autograd.grad(value, tensors, create_graph=True)
            value = sum(g.square().sum() for g in first)
        return torch.autograd.grad(value, tensors)

    inputs = make_inputs(2, 2, 3, device=device, requires_grad=True)
    assert_agree(
        third(entry, inputs), third(lltm_conda.reference, in_float64(inputs)), 1e-10, NAMES
    )
