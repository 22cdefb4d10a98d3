"""Python functions take tensors as they come: strided, expanded, offset, lazily negated."""

from __future__ import annotations

import pytest
import torch
from op_cases import (
    NAMES,
    TOLERANCE,
    assert_agree,
    every_dtype,
    gradients,
    like,
    make_inputs,
    saved_for_backward,
    through_apply,
    through_function,
    through_module,
)

import lltm_conda

RESULTS = ("new_h", "new_cell", "gates")
entries = pytest.mark.parametrize(
    "entry", [through_function, through_apply, through_module], ids=lambda e: e.__name__
)


def strided(tensor):
    wide = torch.stack([tensor, torch.full_like(tensor, float("nan"))], -1)
    return wide[..., 0]


def column_major(tensor):
    return tensor.t().contiguous().t() if tensor.dim() == 2 else strided(tensor)


def offset(tensor):
    """Contiguous, but one element past the start of an allocation: no wide alignment."""
    storage = tensor.new_empty(tensor.numel() + 1)
    storage[1:] = tensor.reshape(-1)
    return storage[1:].view(tensor.shape)


def negated(tensor):
    return torch._neg_view(-tensor)


LAYOUTS = [strided, column_major, offset, negated]
layouts = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)


@entries
@layouts
@pytest.mark.parametrize("name", NAMES)
def test_layout_of_one_input_changes_nothing(device, entry, layout, name) -> None:
    inputs = make_inputs(device=device)
    same = inputs._replace(**{name: layout(getattr(inputs, name))})
    # Not to the bit: a GEMM may take another path where memory is not aligned.
    assert_agree(entry(*same), entry(*inputs), 1e-14, RESULTS[:2])


@entries
@layouts
def test_layout_of_all_inputs_changes_no_gradient(device, entry, layout) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    outputs = entry(*inputs)
    incoming = like(outputs)
    want = gradients(outputs, inputs, incoming)
    laid_out = [layout(t) for t in inputs]
    actual = gradients(entry(*laid_out), laid_out, [layout(g) for g in incoming])
    assert_agree(actual, want, 1e-12, NAMES)


@every_dtype
@pytest.mark.parametrize("shape", [(5, 3, 7), (16, 16, 16)], ids=str)
def test_unaligned_memory_in_the_raw_op(device, dtype, shape) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=device)
    shifted = [offset(t) for t in inputs]
    results = torch.ops.lltm.forward(*inputs)
    assert_agree(torch.ops.lltm.forward(*shifted), results, TOLERANCE[dtype], RESULTS)
    incoming = like(results)
    saved = (*incoming, *saved_for_backward(inputs, results))
    want = torch.ops.lltm.backward(*saved, 31)
    actual = torch.ops.lltm.backward(*map(offset, saved), 31)
    assert_agree(actual, want, TOLERANCE[dtype], NAMES)


def zeros_without_memory(tensor):
    return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=tensor.device)


@entries
@pytest.mark.parametrize("name", NAMES)
def test_zero_tensor_as_an_input(device, entry, name) -> None:
    inputs = make_inputs(device=device)
    zeros = torch.zeros_like(getattr(inputs, name))
    want = entry(*inputs._replace(**{name: zeros}))
    actual = entry(*inputs._replace(**{name: zeros_without_memory(zeros)}))
    assert_agree(actual, want, 1e-14, RESULTS[:2])


@entries
@pytest.mark.parametrize("position", [0, 1], ids=["grad_h", "grad_cell"])
def test_zero_tensor_as_a_gradient(device, entry, position) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    outputs = entry(*inputs)
    incoming = list(like(outputs))
    incoming[position].zero_()
    want = torch.autograd.grad(outputs, inputs, incoming, retain_graph=True)
    incoming[position] = zeros_without_memory(incoming[position])
    actual = torch.autograd.grad(outputs, inputs, incoming)
    assert_agree(actual, want, 1e-14, NAMES)


def test_zero_tensors_in_the_raw_ops(device) -> None:
    inputs = make_inputs(device=device)
    zeros = inputs._replace(old_h=torch.zeros_like(inputs.old_h))
    results = torch.ops.lltm.forward(*zeros)
    lazy = zeros._replace(old_h=zeros_without_memory(zeros.old_h))
    assert_agree(torch.ops.lltm.forward(*lazy), results, 1e-14, RESULTS)
    incoming = [torch.zeros_like(t) for t in results]
    saved = (*saved_for_backward(inputs, results), 31)
    want = torch.ops.lltm.backward(*incoming, *saved)
    actual = torch.ops.lltm.backward(*map(zeros_without_memory, incoming), *saved)
    assert_agree(actual, want, 1e-14, NAMES)


def test_raw_op_resolves_a_lazy_negation(device) -> None:
    inputs = make_inputs(device=device)
    lazy = [torch._neg_view(-t) for t in inputs]
    assert all(t.is_neg() for t in lazy)
    for actual, want in zip(
        torch.ops.lltm.forward(*lazy), torch.ops.lltm.forward(*inputs), strict=True
    ):
        assert torch.equal(actual, want)


@entries
def test_expanded_states_and_input(device, entry) -> None:
    inputs = make_inputs(device=device)
    first = {name: getattr(inputs, name)[:1] for name in ("input", "old_h", "old_cell")}
    expanded = inputs._replace(**{name: t.expand(3, -1) for name, t in first.items()})
    solid = inputs._replace(**{name: t.repeat(3, 1) for name, t in first.items()})
    for actual, want in zip(entry(*expanded), entry(*solid), strict=True):
        assert torch.equal(actual, want)


@entries
def test_expanded_scalars_in_every_argument(device, entry) -> None:
    inputs = make_inputs(device=device)
    expanded = [t.reshape(-1)[0].expand(t.shape) for t in inputs]
    for actual, want in zip(entry(*expanded), entry(*(t.clone() for t in expanded)), strict=True):
        torch.testing.assert_close(actual, want, rtol=1e-12, atol=0)


@entries
def test_gradient_of_an_expanded_state_is_summed(device, entry) -> None:
    inputs = make_inputs(device=device)
    row = inputs.old_h[:1].clone().requires_grad_()
    new_h, new_cell = entry(*inputs._replace(old_h=row.expand(3, -1)))
    (actual,) = torch.autograd.grad(new_h.sum() + new_cell.sum(), row)
    exact = row.detach().clone().requires_grad_()
    new_h, new_cell = lltm_conda.reference(*inputs._replace(old_h=exact.expand(3, -1)))
    (want,) = torch.autograd.grad(new_h.sum() + new_cell.sum(), exact)
    assert_agree([actual], [want], 1e-12, ["row"])


@entries
def test_one_tensor_as_both_states(device, entry) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    shared = inputs.old_h
    results = {}
    for name, function in (("got", entry), ("want", lltm_conda.reference)):
        new_h, new_cell = function(*inputs._replace(old_cell=shared))
        results[name] = torch.autograd.grad(new_h.sum() + 2 * new_cell.sum(), shared)
    assert_agree(results["got"], results["want"], 1e-12, ["old_h as old_cell"])
