"""First derivatives: right, only where wanted, shaped like the inputs, sharing no memory."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from op_cases import (
    NAMES,
    SMALLEST_SCALE,
    TOLERANCE,
    assert_agree,
    every_dtype,
    every_entry,
    gradients,
    in_float64,
    like,
    make_inputs,
    quick,
    reference_with_gates,
    saved_for_backward,
    seeds,
    shapes,
    through_function,
    through_raw_op,
)
from torch.utils.checkpoint import checkpoint

import lltm_conda

# Which of (new_h, new_cell) the loss sees.
through_outputs = pytest.mark.parametrize(
    "used", [(0,), (1,), (0, 1)], ids=["new_h", "new_cell", "both"]
)
GATES_SUBSETS = [s for n in (1, 2, 3) for s in combinations(range(3), n)]


def compare_gradients(function, oracle, inputs, used, *, tolerance, smallest_scale=0.0) -> None:
    exact = in_float64(inputs)
    outputs = function(*inputs)
    wanted_outputs = oracle(*exact)
    outputs = [outputs[i] for i in used]
    incoming = like(outputs)
    actual = gradients(outputs, inputs, incoming)
    want = gradients([wanted_outputs[i] for i in used], exact, in_float64(incoming))
    # Gradients of weights and bias are sums over the batch, of order √B where nothing cancels.
    summed = max(inputs[0].shape[0], 1) ** 0.5
    for name, g, w in zip(NAMES, actual, want, strict=True):
        scale = smallest_scale * (summed if name in ("weights", "bias") else 1.0)
        assert_agree([g], [w], tolerance, [f"gradient of {name}"], scale)


@every_entry
@through_outputs
@every_dtype
@quick
@given(shape=shapes(), seed=seeds)
def test_gradients_agree_with_float64_reference(device, entry, used, dtype, shape, seed) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=device, seed=seed, requires_grad=True)
    compare_gradients(
        entry,
        lltm_conda.reference,
        inputs,
        used,
        tolerance=TOLERANCE[dtype],
        smallest_scale=SMALLEST_SCALE,
    )


@through_outputs
@every_dtype
@pytest.mark.parametrize("shape", [(16, 32, 128), (33, 17, 29), (257, 3, 31)])
def test_gradients_relative_norm_at_fixed_shapes(device, used, dtype, shape) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=device, requires_grad=True)
    compare_gradients(
        through_function, lltm_conda.reference, inputs, used, tolerance=TOLERANCE[dtype]
    )


@every_dtype
@pytest.mark.parametrize("used", GATES_SUBSETS, ids=str)
def test_gradients_through_all_three_results_of_the_raw_op(device, used, dtype) -> None:
    inputs = make_inputs(33, 17, 29, dtype=dtype, device=device, requires_grad=True)
    compare_gradients(
        torch.ops.lltm.forward, reference_with_gates, inputs, used, tolerance=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("mask", range(1, 32))
@pytest.mark.parametrize("entry", [through_function, through_raw_op], ids=lambda e: e.__name__)
def test_only_wanted_gradients_are_returned(device, entry, mask) -> None:
    inputs = make_inputs(device=device)
    expected = [bool(mask & (1 << bit)) for bit in range(5)]
    for tensor, want in zip(inputs, expected, strict=True):
        tensor.requires_grad_(want)
    exact = in_float64(inputs)
    outputs = entry(*inputs)
    incoming = like(outputs)
    torch.autograd.backward(outputs, incoming)
    torch.autograd.backward(lltm_conda.reference(*exact), in_float64(incoming))
    for name, tensor, oracle, want in zip(NAMES, inputs, exact, expected, strict=True):
        if want:
            assert_agree([tensor.grad], [oracle.grad], 1e-12, [name])
        else:
            assert tensor.grad is None, f"{name} got a gradient that nobody asked for"


@pytest.mark.parametrize("needs", range(32))
def test_backward_op_leaves_unwanted_gradients_empty(device, needs) -> None:
    inputs = make_inputs(device=device)
    results = torch.ops.lltm.forward(*inputs)
    arguments = (*like(results), *saved_for_backward(inputs, results))
    everything = torch.ops.lltm.backward(*arguments, 31)
    actual = torch.ops.lltm.backward(*arguments, needs)
    for bit, (name, gradient, full) in enumerate(zip(NAMES, actual, everything, strict=True)):
        if needs & (1 << bit):
            assert_agree([gradient], [full], 1e-12, [name])
        else:
            assert gradient.shape == (0,), f"{name} was not wanted but has {gradient.shape}"


@pytest.mark.parametrize("given_bits", range(8))
def test_backward_op_takes_a_missing_gradient_for_zero(device, given_bits) -> None:
    inputs = make_inputs(device=device)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    given_or_none = [g if given_bits & (1 << i) else None for i, g in enumerate(incoming)]
    given_or_zero = [
        g if given_bits & (1 << i) else torch.zeros_like(g) for i, g in enumerate(incoming)
    ]
    saved = (*saved_for_backward(inputs, results), 31)
    actual = torch.ops.lltm.backward(*given_or_none, *saved)
    want = torch.ops.lltm.backward(*given_or_zero, *saved)
    assert_agree(actual, want, 1e-12, NAMES)


@every_entry
@every_dtype
@pytest.mark.parametrize("bias_rows", [False, True], ids=["bias (3S)", "bias (1, 3S)"])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_gradients_are_shaped_like_their_inputs(device, entry, dtype, bias_rows, batch) -> None:
    inputs = make_inputs(batch, dtype=dtype, device=device, bias_rows=bias_rows, requires_grad=True)
    outputs = entry(*inputs)
    torch.autograd.backward(outputs, like(outputs))
    for name, tensor in zip(NAMES, inputs, strict=True):
        actual = (tensor.grad.shape, tensor.grad.dtype, tensor.grad.device)
        assert actual == (tensor.shape, dtype, device), name


@every_entry
def test_empty_batch_gives_zero_parameter_gradients(device, entry) -> None:
    inputs = make_inputs(0, device=device, requires_grad=True)
    outputs = entry(*inputs)
    torch.autograd.backward(outputs, like(outputs))
    assert not inputs.weights.grad.any() and not inputs.bias.grad.any()


def without_grad(new_h) -> None:
    with torch.no_grad():
        new_h.mul_(0.5)


def through_an_alias(new_h) -> None:
    new_h.detach().zero_()


@every_entry
@every_dtype
@pytest.mark.parametrize("change", [without_grad, through_an_alias], ids=lambda c: c.__name__)
def test_new_h_may_be_changed_in_place_before_backward(device, entry, dtype, change) -> None:
    inputs = make_inputs(dtype=dtype, device=device, requires_grad=True)
    exact = in_float64(inputs)
    outputs = entry(*inputs)
    incoming = like(outputs)
    change(outputs[0])
    actual = torch.autograd.grad(outputs, inputs, incoming)
    want = torch.autograd.grad(lltm_conda.reference(*exact), exact, in_float64(incoming))
    assert_agree(actual, want, TOLERANCE[dtype], NAMES)


def test_second_derivatives_after_new_h_was_changed_in_place(device) -> None:
    def second(step, tensors, change):
        outputs = step(*tensors)
        change(outputs[0])
        incoming = [g.to(outputs[0]) for g in like(outputs)]
        first = torch.autograd.grad(outputs, tensors, incoming, create_graph=True)
        return gradients([sum(g.square().sum() for g in first)], tensors, None)

    inputs = make_inputs(device=device, requires_grad=True)
    actual = second(lltm_conda.lltm, inputs, without_grad)
    want = second(lltm_conda.reference, in_float64(inputs), lambda _: None)
    assert_agree(actual, want, 1e-12, NAMES)


def test_new_h_may_be_changed_in_place_under_hooks(device) -> None:
    # Torch checks no version of a tensor that hooks have packed.
    inputs = make_inputs(device=device, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        outputs = lltm_conda.lltm(*inputs)
    incoming = like(outputs)
    exact = in_float64(inputs)
    without_grad(outputs[0])
    actual = torch.autograd.grad(outputs, inputs, incoming)
    want = gradients(lltm_conda.reference(*exact), exact, in_float64(incoming))
    assert_agree(actual, want, 1e-12, NAMES)


def test_new_h_may_be_changed_in_place_in_a_checkpoint(device) -> None:
    def two_steps(step, change, x, weights, bias, h, cell):
        new_h, new_cell = step(x, weights, bias, h, cell)
        h_before = new_h.clone()
        change(new_h)
        return step(x, weights, bias, h_before, new_cell)

    inputs = make_inputs(device=device, requires_grad=True)
    outputs = checkpoint(two_steps, lltm_conda.lltm, without_grad, *inputs, use_reentrant=False)
    incoming = like(outputs)
    exact = in_float64(inputs)
    actual = torch.autograd.grad(outputs, inputs, incoming)
    outputs = two_steps(lltm_conda.reference, lambda _: None, *exact)
    want = torch.autograd.grad(outputs, exact, in_float64(incoming))
    assert_agree(actual, want, 1e-12, NAMES)


@every_dtype
def test_gradients_of_inputs_that_are_all_zero(device, dtype) -> None:
    zeros = [torch.zeros_like(t) for t in make_inputs(3, 4, 37, dtype=dtype, device=device)]
    inputs = [t.requires_grad_() for t in zeros]
    reference = lltm_conda.reference
    compare_gradients(lltm_conda.lltm, reference, inputs, (0, 1), tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_gradient_of_a_saturated_output_gate_is_right_to_rounding(device, dtype) -> None:
    z_o = torch.cat([torch.linspace(-60, 60, 241), torch.tensor([-750.0, 750.0])]).to(dtype)
    state = z_o.numel()
    inputs = make_inputs(3, 4, state, dtype=dtype, device=device)
    inputs.weights.zero_()
    inputs.bias[state : 2 * state] = z_o
    inputs.bias.requires_grad_()
    exact = in_float64(inputs)
    new_h, new_cell = lltm_conda.lltm(*inputs)
    (actual,) = torch.autograd.grad(new_h.sum(), inputs.bias)
    (want,) = torch.autograd.grad(lltm_conda.reference(*exact)[0].sum(), exact[2])
    error = (actual.to(want) - want)[state : 2 * state].abs()
    bound = new_cell.detach().to(want).tanh().abs().sum(0) * 8 * torch.finfo(dtype).eps
    assert (error <= bound).all(), (error / bound).max()


@every_entry
@pytest.mark.parametrize("changed", ["weights", "old_h", "new_cell"])
def test_changing_what_is_saved_is_an_error_each_time(device, entry, changed) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    new_h, new_cell = entry(*inputs)
    with torch.no_grad():
        (new_cell if changed == "new_cell" else getattr(inputs, changed)).add_(1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad((new_h, new_cell), inputs, like((new_h, new_cell)))


@every_entry
@every_dtype
def test_elements_kept_beyond_inputs_and_outputs(entry, dtype) -> None:
    batch, state = 16, 40
    inputs = make_inputs(batch, 8, state, dtype=dtype, requires_grad=True)
    sizes: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = entry(*inputs)
    outside = {t.untyped_storage().data_ptr() for t in (*inputs, *outputs)}
    beyond = sum(elements for pointer, elements in sizes.items() if pointer not in outside)
    assert beyond == 3 * batch * state


def storages(tensors) -> list[int]:
    return [t.untyped_storage().data_ptr() for t in tensors if t.numel()]


@every_entry
@through_outputs
def test_gradients_share_no_memory(device, entry, used) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    outputs = [entry(*inputs)[i] for i in used]
    incoming = like(outputs)
    slopes = torch.autograd.grad(outputs, inputs, incoming)
    pointers = storages((*slopes, *incoming, *outputs, *inputs))
    assert len(set(pointers)) == len(pointers)


@pytest.mark.parametrize("used", GATES_SUBSETS, ids=str)
def test_gradients_of_the_backward_op_share_no_memory(device, used) -> None:
    inputs = make_inputs(device=device)
    results = torch.ops.lltm.forward(*inputs)
    incoming = [g if i in used else None for i, g in enumerate(like(results))]
    slopes = torch.ops.lltm.backward(*incoming, *saved_for_backward(inputs, results), 31)
    present = [g for g in incoming if g is not None]
    pointers = storages((*slopes, *present, *results, *inputs))
    assert len(set(pointers)) == len(pointers)


@every_dtype
def test_results_share_no_memory_with_inputs(device, dtype) -> None:
    inputs = make_inputs(dtype=dtype, device=device)
    pointers = storages((*torch.ops.lltm.forward(*inputs), *inputs))
    assert len(set(pointers)) == len(pointers)


@every_entry
def test_inputs_and_incoming_gradients_are_not_modified(device, entry) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    outputs = entry(*inputs)
    incoming = like(outputs)
    watched = (*inputs, *outputs, *incoming)
    before = [t.detach().clone() for t in watched]
    versions = [t._version for t in watched]
    torch.autograd.grad(outputs, inputs, incoming)
    assert all(torch.equal(t, b) for t, b in zip(watched, before, strict=True))
    assert [t._version for t in watched] == versions


@every_entry
def test_forward_does_not_modify_inputs(device, entry) -> None:
    inputs = make_inputs(device=device)
    before = [t.clone() for t in inputs]
    entry(*inputs)
    assert all(torch.equal(t, b) for t, b in zip(inputs, before, strict=True))


@every_entry
def test_changing_a_saved_input_in_place_is_noticed(device, entry) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    outputs = entry(*inputs)
    with torch.no_grad():
        inputs.weights.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(outputs, like(outputs))


@every_entry
def test_backward_twice_needs_and_honours_retain_graph(device, entry) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    loss = sum(t.sum() for t in entry(*inputs))
    first = torch.autograd.grad(loss, inputs, retain_graph=True)
    second = torch.autograd.grad(loss, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, inputs)


@every_dtype
def test_expanded_incoming_gradient(device, dtype) -> None:
    # sum() hands back an expanded scalar: strides of 0.
    inputs = make_inputs(33, 17, 29, dtype=dtype, device=device, requires_grad=True)
    exact = in_float64(inputs)
    new_h, new_cell = through_function(*inputs)
    want_h, want_cell = lltm_conda.reference(*exact)
    actual = torch.autograd.grad(new_h.sum() + new_cell.sum(), inputs)
    want = torch.autograd.grad(want_h.sum() + want_cell.sum(), exact)
    assert_agree(actual, want, TOLERANCE[dtype], NAMES)


@every_entry
def test_a_chain_of_steps_trains_like_the_reference(device, entry) -> None:
    def unrolled(step, inputs):
        x, w, b, h, c = inputs
        for _ in range(6):
            h, c = step(x, w, b, h, c)
        return h.square().sum() + c.sum()

    inputs = make_inputs(device=device, requires_grad=True)
    exact = in_float64(inputs)
    actual = torch.autograd.grad(unrolled(entry, inputs), inputs)
    want = torch.autograd.grad(unrolled(lltm_conda.reference, exact), exact)
    assert_agree(actual, want, 1e-12, NAMES)
