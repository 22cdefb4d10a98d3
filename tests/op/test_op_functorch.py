"""vmap and torch.func over the op, compared with loops and with the reference."""

from __future__ import annotations

import pytest
import torch
from op_cases import (
    NAMES,
    TORCH,
    Inputs,
    assert_agree,
    every_entry,
    like,
    make_inputs,
    prepared,
    through_apply,
    through_function,
    through_raw_op,
)
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import lltm_conda
from lltm_conda import functions

RESULTS = ("new_h", "new_cell")
DIFFERENTIABLE = [through_function, through_apply]
differentiable = pytest.mark.parametrize("entry", DIFFERENTIABLE, ids=lambda e: e.__name__)
LANES = 4


def lanes(count, where, *, device, dim=0, **options):
    """Inputs with an extra dimension of `count` where wanted, and the in_dims that say so."""
    many = [make_inputs(device=device, seed=seed, **options) for seed in range(count)]
    tensors, in_dims = [], []
    for position, batched in enumerate(where):
        column = [inputs[position] for inputs in many]
        at = min(dim, column[0].dim())
        tensors.append(torch.stack(column, at) if batched else column[0])
        in_dims.append(at if batched else None)
    return tensors, tuple(in_dims)


def looped(function, tensors, in_dims, count):
    """What vmap means, one lane at a time."""
    each = [
        function(
            *(t if d is None else t.select(d, k) for t, d in zip(tensors, in_dims, strict=True))
        )
        for k in range(count)
    ]
    return tuple(torch.stack(column) for column in zip(*each, strict=True))


@pytest.mark.parametrize("mask", range(1, 32))
@pytest.mark.parametrize("entry", [through_function, through_raw_op], ids=lambda e: e.__name__)
def test_vmap_over_any_of_the_inputs(device, entry, mask) -> None:
    where = [bool(mask & (1 << bit)) for bit in range(5)]
    tensors, in_dims = lanes(LANES, where, device=device)
    actual = vmap(prepared(entry), in_dims=in_dims)(*tensors)
    want = looped(lltm_conda.reference, tensors, in_dims, LANES)
    assert_agree(actual, want, 1e-12, RESULTS)


@every_entry
@pytest.mark.parametrize("dim", [1, 2])
def test_vmap_over_an_inner_dimension(device, entry, dim) -> None:
    if entry is through_raw_op and TORCH < (2, 6):
        # torch itself calls the op lane by lane, and the raw op takes contiguous lanes only.
        pytest.skip("vmap of the raw op over an inner dimension needs torch >= 2.6")
    tensors, in_dims = lanes(LANES, [True] * 5, device=device, dim=dim)
    actual = vmap(prepared(entry), in_dims=in_dims)(*tensors)
    want = looped(lltm_conda.reference, tensors, in_dims, LANES)
    assert_agree(actual, want, 1e-12, RESULTS)


@every_entry
def test_vmap_writes_to_an_inner_dimension(device, entry) -> None:
    tensors, in_dims = lanes(LANES, [True] * 5, device=device)
    actual = vmap(prepared(entry), in_dims=in_dims, out_dims=1)(*tensors)
    want = looped(lltm_conda.reference, tensors, in_dims, LANES)
    assert_agree([g.movedim(1, 0) for g in actual], want, 1e-12, RESULTS)


def test_vmap_of_all_three_results(device) -> None:
    tensors, in_dims = lanes(LANES, [True, False, False, True, True], device=device)
    actual = vmap(torch.ops.lltm.forward, in_dims=in_dims)(*tensors)
    want = looped(torch.ops.lltm.forward, tensors, in_dims, LANES)
    assert_agree(actual, want, 1e-12, (*RESULTS, "gates"))


@every_entry
def test_vmap_inside_vmap(device, entry) -> None:
    inner = [lanes(LANES, [True] * 5, device=device)[0] for _ in range(2)]
    tensors = [torch.stack([a, 2 * b]) for a, b in zip(*inner, strict=True)]
    actual = vmap(vmap(prepared(entry)))(*tensors)
    flat = [t.flatten(0, 1) for t in tensors]
    want = looped(lltm_conda.reference, flat, (0,) * 5, 2 * LANES)
    assert_agree([g.flatten(0, 1) for g in actual], want, 1e-12, RESULTS)


@every_entry
def test_vmap_then_backward(device, entry) -> None:
    tensors, in_dims = lanes(LANES, [True, False, False, True, True], device=device)
    results = {}
    for name, run in (
        ("got", lambda t: vmap(prepared(entry), in_dims=in_dims)(*t)),
        ("want", lambda t: looped(lltm_conda.reference, t, in_dims, LANES)),
    ):
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        outputs = run(leaves)
        results[name] = torch.autograd.grad(outputs, leaves, like(outputs))
    assert_agree(results["got"], results["want"], 1e-12, NAMES)


def scalar(function):
    def loss(*inputs):
        new_h, new_cell = function(*inputs)
        return new_h.square().sum() + new_cell.sum()

    return loss


@differentiable
def test_func_grad(device, entry) -> None:
    inputs = make_inputs(device=device)
    actual = grad(scalar(entry), argnums=tuple(range(5)))(*inputs)
    want = grad(scalar(lltm_conda.reference), argnums=tuple(range(5)))(*inputs)
    assert_agree(actual, want, 1e-12, NAMES)


@differentiable
def test_func_grad_of_grad(device, entry) -> None:
    inputs = make_inputs(device=device)

    def penalty(function):
        inner = grad(scalar(function), argnums=1)
        return grad(lambda *t: inner(*t).square().sum(), argnums=tuple(range(5)))

    assert_agree(penalty(entry)(*inputs), penalty(lltm_conda.reference)(*inputs), 1e-11, NAMES)


@differentiable
def test_func_vjp(device, entry) -> None:
    inputs = make_inputs(device=device)
    outputs, pull_back = vjp(entry, *inputs)
    _, oracle = vjp(lltm_conda.reference, *inputs)
    incoming = like(outputs)
    assert_agree(pull_back(incoming), oracle(incoming), 1e-12, NAMES)


@differentiable
@pytest.mark.parametrize("argnum", range(5), ids=NAMES)
def test_jacrev(device, entry, argnum) -> None:
    inputs = make_inputs(2, 2, 3, device=device)
    actual = jacrev(entry, argnums=argnum)(*inputs)
    want = jacrev(lltm_conda.reference, argnums=argnum)(*inputs)
    assert_agree(actual, want, 1e-12, RESULTS)


@differentiable
@pytest.mark.parametrize("argnum", range(5), ids=NAMES)
def test_hessian_in_reverse_mode(device, entry, argnum) -> None:
    inputs = make_inputs(2, 2, 2, device=device)
    actual = jacrev(jacrev(scalar(entry), argnums=argnum), argnums=argnum)(*inputs)
    want = jacrev(jacrev(scalar(lltm_conda.reference), argnums=argnum), argnums=argnum)(*inputs)
    assert_agree([actual], [want], 1e-11, ["hessian"])


@differentiable
@pytest.mark.parametrize("vectorize", [False, True], ids=["looped", "vectorized"])
def test_hessian_of_autograd_functional(device, entry, vectorize) -> None:
    inputs = make_inputs(2, 2, 2, device=device)

    def of_bias(function):
        return lambda bias: scalar(function)(*inputs._replace(bias=bias))

    functional = torch.autograd.functional.hessian
    actual = functional(of_bias(entry), inputs.bias, vectorize=vectorize)
    want = functional(of_bias(lltm_conda.reference), inputs.bias)
    assert_agree([actual], [want], 1e-11, ["hessian"])


@differentiable
def test_per_sample_gradients(device, entry) -> None:
    inputs = make_inputs(6, device=device)

    def of_one(function):
        def loss(x, w, b, h, c):
            return scalar(function)(x[None], w, b, h[None], c[None])

        return vmap(grad(loss, argnums=(1, 2)), in_dims=(0, None, None, 0, 0))

    actual = of_one(entry)(*inputs)
    want = of_one(lltm_conda.reference)(*inputs)
    assert actual[0].shape == (6, 15, 9)
    assert_agree(actual, want, 1e-12, ("weights", "bias"))


def test_per_sample_gradients_of_the_module(device) -> None:
    module = lltm_conda.LLTM(4, 5, device=device, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    inputs = make_inputs(6, device=device)

    def loss(parameters, x, h, c):
        new_h, _ = functional_call(module, parameters, (x[None], (h[None], c[None])))
        return new_h.square().sum()

    actual = vmap(grad(loss), in_dims=(None, 0, 0, 0))(
        parameters, inputs.input, inputs.old_h, inputs.old_cell
    )
    for k in range(6):
        x, h, c = (t[k : k + 1] for t in (inputs.input, inputs.old_h, inputs.old_cell))
        leaves = [p.clone().requires_grad_() for p in (parameters["weights"], parameters["bias"])]
        new_h, _ = lltm_conda.reference(x, *leaves, h, c)
        want = torch.autograd.grad(new_h.square().sum(), leaves)
        assert_agree([actual["weights"][k], actual["bias"][k]], want, 1e-12, ("weights", "bias"))


def test_ensemble_of_modules(device) -> None:
    modules = [lltm_conda.LLTM(4, 5, device=device, dtype=torch.float64) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(modules)
    skeleton = lltm_conda.LLTM(4, 5, device="meta", dtype=torch.float64)
    inputs = make_inputs(device=device)
    arguments = (inputs.input, (inputs.old_h, inputs.old_cell))
    actual = vmap(lambda p, b: functional_call(skeleton, (p, b), arguments))(parameters, buffers)
    for k, module in enumerate(modules):
        assert_agree([g[k] for g in actual], module(*arguments), 1e-12, RESULTS)


@differentiable
def test_functorch_does_not_modify_inputs(device, entry) -> None:
    inputs = make_inputs(device=device)
    before = Inputs(*(t.clone() for t in inputs))
    grad(scalar(entry), argnums=(0, 1, 2, 3, 4))(*inputs)
    assert all(torch.equal(t, b) for t, b in zip(inputs, before, strict=True))


# Forward mode runs the plain definition.


@every_entry
def test_func_jvp(device, entry) -> None:
    inputs = make_inputs(device=device)
    actual, got_tangents = jvp(prepared(entry), tuple(inputs), like(inputs))
    want, want_tangents = jvp(lltm_conda.reference, tuple(inputs), like(inputs))
    assert_agree((*actual, *got_tangents), (*want, *want_tangents), 1e-12, RESULTS * 2)


@every_entry
@pytest.mark.parametrize("argnum", range(5), ids=NAMES)
def test_jacfwd(device, entry, argnum) -> None:
    inputs = make_inputs(2, 2, 3, device=device)
    actual = jacfwd(prepared(entry, 2, 3), argnums=argnum)(*inputs)
    want = jacrev(lltm_conda.reference, argnums=argnum)(*inputs)
    assert_agree(actual, want, 1e-12, RESULTS)


def tangents_of(function, inputs, position):
    """The tangents of the results, if one input has a tangent."""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(inputs[position], like(inputs)[position])
        results = function(*inputs[:position], dual, *inputs[position + 1 :])
        return [forward_ad.unpack_dual(result).tangent for result in results]


@every_entry
@pytest.mark.parametrize("recording", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("requires_grad", [True, False], ids=["trained", "frozen"])
@pytest.mark.parametrize("position", range(5), ids=NAMES)
def test_dual_tensors(device, entry, recording, requires_grad, position) -> None:
    inputs = make_inputs(device=device, requires_grad=requires_grad)
    with torch.set_grad_enabled(recording):
        actual = tangents_of(entry, inputs, position)
        want = tangents_of(lltm_conda.reference, inputs, position)
    for tangent, expected in zip(actual, want, strict=True):
        assert (tangent is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(tangent, expected, rtol=1e-12, atol=1e-12)


@every_entry
def test_tangents_of_incoming_gradients(device, entry) -> None:
    """A backward pass is linear in the incoming gradients, and passes their tangents on."""
    inputs = make_inputs(device=device, requires_grad=True)
    tangents = []
    for function in (entry, lltm_conda.reference):
        with forward_ad.dual_level():
            outputs = function(*inputs)
            incoming = [forward_ad.make_dual(t, 3 * t) for t in like(outputs)]
            slopes = torch.autograd.grad(outputs, inputs, incoming)
            tangents.append([forward_ad.unpack_dual(slope).tangent for slope in slopes])
    assert_agree(*tangents, 1e-12, NAMES)


def test_an_open_level_without_tangents_keeps_the_kernels(device) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    want = lltm_conda.lltm(*inputs)
    with forward_ad.dual_level():
        actual = lltm_conda.lltm(*inputs)
    assert all(torch.equal(g, w) for g, w in zip(actual, want, strict=True))
    assert "LLTMFunction" in type(actual[0].grad_fn).__name__


@pytest.mark.parametrize("transform", [grad, jacrev, hessian], ids=lambda t: t.__name__)
@pytest.mark.parametrize("argnum", range(5), ids=NAMES)
def test_transforms_of_the_raw_op(device, transform, argnum) -> None:
    inputs = make_inputs(2, 2, 2, device=device)
    actual = transform(scalar(through_raw_op), argnums=argnum)(*inputs)
    want = transform(scalar(lltm_conda.reference), argnums=argnum)(*inputs)
    assert_agree([actual], [want], 1e-11, [transform.__name__])


@differentiable
@pytest.mark.parametrize("argnum", range(5), ids=NAMES)
def test_hessian_of_torch_func(device, entry, argnum) -> None:
    """Forward mode over reverse mode, which goes through the plain definition."""
    inputs = make_inputs(2, 2, 2, device=device)
    actual = hessian(scalar(entry), argnums=argnum)(*inputs)
    want = hessian(scalar(lltm_conda.reference), argnums=argnum)(*inputs)
    assert_agree([actual], [want], 1e-11, ["hessian"])


def test_vmap_over_an_empty_batch(device) -> None:
    tensors, in_dims = lanes(LANES, [True] * 5, device=device, batch=0)
    for result in vmap(through_function, in_dims=in_dims)(*tensors):
        assert result.shape == (LANES, 0, 5)


@pytest.mark.parametrize("transform", [grad, jacrev, hessian], ids=lambda t: t.__name__)
def test_the_function_of_older_torches(monkeypatch, device, transform) -> None:
    """Before torch 2.6 an autograd Function serves torch.func; newer ones have it still."""
    monkeypatch.setattr(functions, "_RAW_OP_HAS_VMAP", False)
    inputs = make_inputs(2, 2, 2, device=device)
    actual = transform(scalar(lltm_conda.lltm), argnums=1)(*inputs)
    want = transform(scalar(lltm_conda.reference), argnums=1)(*inputs)
    assert_agree([actual], [want], 1e-11, [transform.__name__])
    tensors, in_dims = lanes(LANES, [True, False, False, True, True], device=device)
    mapped = vmap(lltm_conda.lltm, in_dims=in_dims)(*tensors)
    looped_over = looped(lltm_conda.reference, tensors, in_dims, LANES)
    assert_agree(mapped, looped_over, 1e-12, RESULTS)
