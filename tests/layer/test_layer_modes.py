"""torch.compile, torch.export, autocast, functorch, opcheck."""

from __future__ import annotations

import io
import os
import shutil

import pytest
import torch
from layer_cases import RESULTS, TOLERANCE, Case, leaves, loop, names, run
from op_cases import assert_agree, gradients, like
from torch.export import Dim

from lltm_conda import LLTMLayer

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="Inductor needs a C++ compiler"
)


@pytest.fixture(autouse=True)
def forget_compiled_code():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def agrees(call, layer, inputs, tolerance=1e-12) -> None:
    output, (h_n, c_n) = call(inputs[0], tuple(inputs[1:]) or None)
    actual = (output, h_n, c_n)
    expected = loop(layer, *inputs)
    assert_agree(actual, expected, tolerance, RESULTS)
    incoming = like(actual)
    slopes = gradients(actual, leaves(layer, inputs), incoming)
    want = gradients(expected, leaves(layer, inputs), incoming)
    assert_agree(slopes, want, tolerance, names(layer, inputs))


@pytest.mark.parametrize(
    ("options", "given_state"),
    [
        # Two layers in two directions take a second each.
        pytest.param({}, True, id="kept-state"),
        pytest.param({}, False, id="kept-zeros", marks=pytest.mark.slow),
        pytest.param({"keep_cells": False}, False, id="again-zeros", marks=pytest.mark.slow),
        pytest.param({"checkpoint": 2}, True, id="checkpoint-state", marks=pytest.mark.slow),
        pytest.param({"checkpoint": 2}, False, id="checkpoint-zeros", marks=pytest.mark.slow),
    ],
)
def test_compiles_without_a_graph_break(device, options, given_state) -> None:
    case = Case(layers=2, bidirectional=True, given_state=given_state)
    layer = case.layer(device=device, dtype=torch.float64, **options)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    agrees(compiled, layer, case.inputs(layer))


def test_compiles_for_any_length(device) -> None:
    layer = Case().layer(device=device, dtype=torch.float64)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    for steps, batch in ((5, 3), (9, 2), (4, 7)):
        agrees(compiled, layer, Case(steps, batch).inputs(layer))


@needs_compiler
@pytest.mark.slow
def test_inductor(device) -> None:
    case = Case(layers=2)
    layer = case.layer(device=device, dtype=torch.float64)
    agrees(torch.compile(layer, fullgraph=True), layer, case.inputs(layer))


def test_exports_for_any_length_and_batch(device) -> None:
    layer = Case(given_state=False).layer(device=device, dtype=torch.float64)
    (input,) = Case(given_state=False).inputs(layer)
    shape = {0: Dim("steps", min=2, max=64), 1: Dim("batch", min=2, max=64)}
    program = torch.export.export(layer, (input.detach(),), dynamic_shapes={"input": shape})
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    module = torch.export.load(file).module()
    for steps, batch in ((5, 3), (11, 7)):
        (other,) = Case(steps, batch, given_state=False).inputs(layer)
        assert_agree((module(other)[0],), (layer(other)[0],), 1e-12, RESULTS[:1])


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_autocast_casts_as_a_linear_layer(device, compiled) -> None:
    case = Case(layers=2)
    layer = case.layer(device=device)
    call = torch.compile(layer, backend="aot_eager", fullgraph=True) if compiled else layer
    input, *state = case.inputs(layer)
    with torch.autocast(device.type, torch.bfloat16):
        output, (h_n, c_n) = call(input, tuple(state))
    assert output.dtype == h_n.dtype == c_n.dtype == torch.bfloat16
    want = loop(layer.double(), *(t.detach().double() for t in (input, *state)))
    assert_agree((output, h_n, c_n), want, TOLERANCE[torch.bfloat16], RESULTS)
    output.sum().backward()
    assert input.grad.dtype == torch.float32


def test_vmap_and_per_sample_gradients(device) -> None:
    layer = Case().layer(device=device, dtype=torch.float64)
    samples = torch.randn(4, 5, 3, 4, device=device, dtype=torch.float64)
    mapped = torch.vmap(lambda sample: layer(sample)[0])(samples)
    one_by_one = torch.stack([layer(sample)[0] for sample in samples])
    assert_agree((mapped,), (one_by_one,), 1e-12, RESULTS[:1])

    def loss(parameters, sample):
        return torch.func.functional_call(layer, parameters, (sample,))[0].square().sum()

    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, samples)
    total = torch.autograd.grad(
        sum(layer(sample)[0].square().sum() for sample in samples), list(layer.parameters())
    )
    assert_agree([each[name].sum(0) for name in parameters], total, 1e-12, list(parameters))


def test_jacobians_in_reverse_mode(device) -> None:
    layer = LLTMLayer(2, 3, device=device, dtype=torch.float64)
    input = torch.randn(3, 2, 2, device=device, dtype=torch.float64)
    actual = torch.func.jacrev(lambda x: layer(x)[0])(input)
    want = torch.autograd.functional.jacobian(lambda x: loop(layer, x)[0], input)
    assert_agree((actual,), (want,), 1e-12, ("jacobian",))


@pytest.mark.parametrize("keep_cells", [True, False])
@pytest.mark.parametrize("missing", [(), (2,), (3, 4)], ids=str)
@pytest.mark.parametrize("state", [(2, 5), (1, 2, 5)], ids=str)
@pytest.mark.slow
def test_opcheck_of_forward(device, keep_cells, missing, state) -> None:
    shapes = ((3, 2, 4), (15, 9), (15,), state, state)
    tensors = [
        None
        if k in missing
        else torch.randn(shape, device=device, dtype=torch.float64).requires_grad_()
        for k, shape in enumerate(shapes)
    ]
    arguments = (*tensors, False, keep_cells, False)
    torch.library.opcheck(torch.ops.lltm.layer_forward.default, arguments)


@pytest.mark.parametrize("needs", [31, 6, 0])
@pytest.mark.parametrize("state", [(2, 5), (1, 2, 5)], ids=str)
def test_opcheck_of_backward(device, needs, state) -> None:
    shapes = ((3, 2, 4), (15, 9), (15,), state, state)
    tensors = [torch.randn(shape, device=device, dtype=torch.float64) for shape in shapes]
    output, h, c, gates, cells = torch.ops.lltm.layer_forward(*tensors, False, True, False)
    grads = like((output, h, c, cells))
    arguments = (*grads, *tensors, output, gates, cells, needs, False, False)
    torch.library.opcheck(torch.ops.lltm.layer_backward.default, arguments)


def test_inference_mode(device) -> None:
    case = Case(given_state=False)
    layer = case.layer(device=device, dtype=torch.float64)
    (input,) = case.inputs(layer)
    with torch.inference_mode():
        actual = run(layer, input)
    assert_agree(actual, loop(layer, input), 1e-12, RESULTS)
