"""The registrations of the raw ops: schema, autograd, fake tensors, and promised layouts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from op_cases import TORCH, every_dtype, like, make_inputs, quick, saved_for_backward, shapes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

# opcheck's own comparison of eager and traced gradients; the values have their own tests. Before
# torch 2.7 opcheck knows its own, tighter tolerances alone.
LOOSE = {"rtol": 2e-2, "atol": 2e-2} if TORCH >= (2, 7) else {}


def layout(tensor):
    return (tuple(tensor.shape), tensor.stride(), tensor.dtype)


def backward_arguments(inputs, given_bits=7, needs=31):
    results = [t.detach() for t in torch.ops.lltm.forward(*(t.detach() for t in inputs))]
    incoming = [g if given_bits & (1 << bit) else None for bit, g in enumerate(like(results))]
    return (*incoming, *saved_for_backward(inputs, results), needs)


@every_dtype
@pytest.mark.parametrize("requires_grad", [False, True], ids=["", "requires_grad"])
def test_opcheck_forward(device, dtype, requires_grad) -> None:
    inputs = make_inputs(dtype=dtype, device=device, requires_grad=requires_grad)
    opcheck(torch.ops.lltm.forward.default, tuple(inputs), **LOOSE)


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("bias_rows", [False, True], ids=["bias (3S)", "bias (1, 3S)"])
def test_opcheck_forward_at_the_edges(device, batch, bias_rows) -> None:
    inputs = make_inputs(batch, device=device, bias_rows=bias_rows, requires_grad=True)
    opcheck(torch.ops.lltm.forward.default, tuple(inputs))


@every_dtype
def test_opcheck_backward(device, dtype) -> None:
    arguments = backward_arguments(make_inputs(dtype=dtype, device=device))
    opcheck(torch.ops.lltm.backward.default, arguments, **LOOSE)


def test_opcheck_backward_that_requires_grad(device) -> None:
    arguments = backward_arguments(make_inputs(device=device, requires_grad=True))
    opcheck(torch.ops.lltm.backward.default, arguments)


@pytest.mark.parametrize(
    ("given_bits", "needs"), [(1, 31), (2, 31), (4, 31), (3, 6), (3, 25), (0, 31), (3, 0)]
)
def test_opcheck_backward_with_missing_and_unwanted_gradients(device, given_bits, needs) -> None:
    arguments = backward_arguments(make_inputs(device=device, bias_rows=True), given_bits, needs)
    opcheck(torch.ops.lltm.backward.default, arguments)


@every_dtype
@quick
@given(shape=shapes())
def test_fake_forward_has_the_real_layout(device, dtype, shape) -> None:
    inputs = make_inputs(*shape, dtype=dtype, device=device)
    real = torch.ops.lltm.forward(*inputs)
    with FakeTensorMode() as mode:
        fake = torch.ops.lltm.forward(*(mode.from_tensor(t) for t in inputs))
    assert [layout(t) for t in fake] == [layout(t) for t in real]
    assert {t.device for t in fake} == {device}


@quick
@given(shape=shapes())
def test_meta_forward_has_the_real_layout(device, shape) -> None:
    inputs = make_inputs(*shape, device=device)
    real = torch.ops.lltm.forward(*inputs)
    meta = torch.ops.lltm.forward(*(t.to("meta") for t in inputs))
    assert [layout(t) for t in meta] == [layout(t) for t in real]


@pytest.mark.parametrize("bias_rows", [False, True], ids=["bias (3S)", "bias (1, 3S)"])
@pytest.mark.parametrize("needs", [0, 1, 2, 4, 8, 16, 21, 31])
def test_fake_backward_has_the_real_layout(device, bias_rows, needs) -> None:
    arguments = backward_arguments(make_inputs(device=device, bias_rows=bias_rows), needs=needs)
    real = torch.ops.lltm.backward(*arguments)
    with FakeTensorMode() as mode:
        tensors = [mode.from_tensor(t) for t in arguments[:-1]]
        fake = torch.ops.lltm.backward(*tensors, needs)
    assert [layout(t) for t in fake] == [layout(t) for t in real]


def test_fake_forward_refuses_a_wrong_shape_like_the_real_one() -> None:
    inputs = [t.to("meta") for t in make_inputs()]
    inputs[4] = torch.empty(3, 6, dtype=torch.float64, device="meta")
    with pytest.raises((RuntimeError, ValueError), match="old_cell"):
        torch.ops.lltm.forward(*inputs)


def test_schemas_say_that_nothing_is_aliased_or_mutated() -> None:
    for op in (torch.ops.lltm.forward.default, torch.ops.lltm.backward.default):
        schema = op._schema
        assert not schema.is_mutable
        assert all(argument.alias_info is None for argument in schema.arguments)
        assert all(result.alias_info is None for result in schema.returns)


def test_argument_names_are_the_public_ones() -> None:
    forward = [a.name for a in torch.ops.lltm.forward.default._schema.arguments]
    assert forward == ["input", "weights", "bias", "old_h", "old_cell"]
    backward = [a.name for a in torch.ops.lltm.backward.default._schema.arguments]
    saved = ["input", "weights", "bias", "old_h", "new_cell", "gates"]
    assert backward == ["grad_h", "grad_cell", "grad_gates", *saved, "needs"]
