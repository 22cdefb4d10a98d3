"""Programs without the raw ops: decomposed ones, and ONNX models under onnxruntime."""

from __future__ import annotations

import io

import pytest
import torch
from op_cases import since
from torch import Tensor, nn
from torch.export import Dim, export
from torch.utils._pytree import tree_leaves

from lltm_conda import LLTM, LLTMLayer, decompositions

BATCH = Dim("batch", min=1, max=64)
STEPS = Dim("steps", min=1, max=64)


def decomposed(module: nn.Module, arguments, shapes, *, scan: bool):
    program = export(module.eval(), arguments, dynamic_shapes=shapes)
    table = {**torch.export.default_decompositions(), **decompositions(scan=scan)}
    program = program.run_decompositions(table)
    assert "lltm" not in str(program.graph)
    return program


def assert_computes(call, module: nn.Module, *cases) -> None:
    for arguments in cases:
        torch.testing.assert_close(
            tree_leaves(call(*arguments)), tree_leaves(module(*arguments)), rtol=1e-5, atol=1e-6
        )


LAYERS = [
    {},
    {"num_layers": 2, "bidirectional": True, "bias": False},
    {"keep_cells": False},
]
decomposes = since("2.6", "torch.export.default_decompositions")
scans = since("2.13", "torch.scan that exports")


@decomposes
@pytest.mark.slow
def test_a_cell_without_raw_ops() -> None:
    cell = LLTM(3, 4)
    program = decomposed(cell, (torch.randn(5, 3),), ({0: BATCH},), scan=False)
    assert_computes(program.module(), cell, (torch.randn(5, 3),), (torch.randn(7, 3),))


@decomposes
@pytest.mark.parametrize(
    "options",
    [LAYERS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in LAYERS[1:])],
    ids=str,
)
@pytest.mark.slow
def test_a_layer_of_one_length_without_raw_ops(options) -> None:
    layer = LLTMLayer(3, 4, **options)
    program = decomposed(layer, (torch.randn(5, 2, 3),), ({1: BATCH},), scan=False)
    assert_computes(program.module(), layer, (torch.randn(5, 2, 3),), (torch.randn(5, 7, 3),))


@pytest.mark.slow
@scans
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_a_layer_of_any_length_without_raw_ops(options) -> None:
    layer = LLTMLayer(3, 4, **options)
    shapes = ({0: STEPS, 1: BATCH},)
    program = decomposed(layer, (torch.randn(5, 2, 3),), shapes, scan=True)
    assert_computes(program.module(), layer, (torch.randn(5, 2, 3),), (torch.randn(9, 7, 3),))


@pytest.mark.slow
@decomposes
def test_a_decomposed_program_loads_without_the_package(tmp_path, forked) -> None:
    cell = LLTM(3, 4)
    x = torch.randn(5, 3)
    torch.export.save(decomposed(cell, (x,), None, scan=False), tmp_path / "cell.pt2")
    torch.save(x, tmp_path / "x.pt")
    program = (
        "import sys, torch\n"
        "results = torch.export.load('cell.pt2').module()(torch.load('x.pt'))\n"
        "assert 'lltm_conda' not in sys.modules\n"
        "torch.save(results, 'results.pt')\n"
    )
    run = forked.run(program, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    torch.testing.assert_close(torch.load(tmp_path / "results.pt"), cell(x))


def raw_arguments(op: str, *, keep_cells: bool, reverse: bool, with_optional: bool):
    """Arguments of a raw backward op, from its forward op."""
    if op == "backward":
        shapes = ((2, 3), (12, 7), (12,), (2, 4), (2, 4))
        input, weights, bias, h, cell = (torch.randn(shape).double() for shape in shapes)
        results = torch.ops.lltm.forward(input, weights, bias, h, cell)
        grads = [torch.randn_like(result) for result in results]
        _, new_cell, gates = results
        return (*grads, input, weights, bias, h, new_cell, gates if with_optional else None)
    shapes = ((5, 2, 3), (12, 7), (12,), (1, 2, 4), (1, 2, 4))
    tensors = [torch.randn(shape).double() for shape in shapes]
    if not with_optional:
        tensors[2:] = [None] * 3
    results = torch.ops.lltm.layer_forward(*tensors, reverse, keep_cells, False)
    output, final_h, final_cell, gates, cells = results
    grads = [torch.randn_like(result) for result in (output, final_h, final_cell)]
    grad_cells = torch.randn_like(cells) if keep_cells else None
    return (*grads, grad_cells, *tensors, output, gates, cells)


@pytest.mark.parametrize("op", ["backward", "layer_backward"])
@pytest.mark.parametrize("needs", [31, 6, 9, 0])
@pytest.mark.parametrize("with_optional", [True, False], ids=["given", "missing"])
@pytest.mark.parametrize("keep_cells", [True, False], ids=["kept", "again"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_plain_backward_ops(op, needs, with_optional, keep_cells, reverse) -> None:
    torch.manual_seed(0)
    tensors = raw_arguments(op, keep_cells=keep_cells, reverse=reverse, with_optional=with_optional)
    options = (needs,) if op == "backward" else (needs, reverse, False)
    raw = getattr(torch.ops.lltm, op).default
    actual = decompositions()[raw](*tensors, *options)
    for result, want in zip(actual, raw(*tensors, *options), strict=True):
        torch.testing.assert_close(result, want, rtol=1e-10, atol=1e-12)


@pytest.fixture
def onnxruntime():
    """Asked for before anything is converted."""
    pytest.importorskip("onnxscript")
    return pytest.importorskip("onnxruntime")


def under_onnxruntime(onnxruntime, program, arguments, **options):
    """The program or module as a function, converted to ONNX."""
    model = torch.onnx.export(program, arguments, dynamo=True, verbose=False, **options)
    buffer = io.BytesIO()
    model.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue())
    names = [argument.name for argument in session.get_inputs()]

    def call(*arguments: Tensor) -> list[Tensor]:
        values = (tensor.numpy() for tensor in tree_leaves(arguments))
        return [
            torch.from_numpy(result)
            for result in session.run(None, dict(zip(names, values, strict=True)))
        ]

    return call


@decomposes
def test_a_cell_under_onnxruntime(onnxruntime) -> None:
    cell = LLTM(3, 4)
    example = (torch.randn(5, 3),)
    program = decomposed(cell, example, ({0: BATCH},), scan=False)
    call = under_onnxruntime(onnxruntime, program, example)
    assert_computes(call, cell, example, (torch.randn(7, 3),))
    call = under_onnxruntime(onnxruntime, cell, example, dynamic_shapes=({0: BATCH},))
    assert_computes(call, cell, example, (torch.randn(7, 3),))


@decomposes
def test_a_cell_in_float16_under_onnxruntime(onnxruntime) -> None:
    cell = LLTM(3, 4, dtype=torch.float16)
    x = torch.randn(5, 3).half()
    actual = under_onnxruntime(onnxruntime, cell, (x,))(x)
    torch.testing.assert_close(tree_leaves(actual), tree_leaves(cell(x)))


@decomposes
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_onnxruntime_has_no_elu_of_a_dtype_that_the_page_names(onnxruntime, dtype) -> None:
    cell = LLTM(3, 4, dtype=dtype)
    with pytest.raises(Exception, match=r"\bElu\b"):
        under_onnxruntime(onnxruntime, cell, (torch.randn(5, 3).to(dtype),))


@scans
@pytest.mark.parametrize(
    ("options", "given_state", "trained", "directly"),
    [
        # Each value of each beside each way of conversion: a conversion takes seconds.
        (LAYERS[0], True, True, True),
        (LAYERS[1], False, False, True),
        (LAYERS[2], True, False, True),
        (LAYERS[0], False, False, False),
        (LAYERS[1], True, True, False),
        (LAYERS[2], False, True, False),
    ],
    ids=str,
)
def test_a_layer_of_any_length_and_batch_under_onnxruntime(
    onnxruntime, options, given_state, trained, directly
) -> None:
    layer = LLTMLayer(3, 4, batch_first=True, **options).requires_grad_(trained)
    count = layer.num_layers * (2 if layer.bidirectional else 1)

    def arguments(steps: int, batch: int):
        state = (torch.randn(count, batch, 4), torch.randn(count, batch, 4))
        return (torch.randn(batch, steps, 3), *([state] if given_state else []))

    shapes = ({0: BATCH, 1: STEPS}, *([({1: BATCH}, {1: BATCH})] if given_state else []))
    example = arguments(5, 2)
    if directly:
        call = under_onnxruntime(onnxruntime, layer, example, dynamic_shapes=shapes)
    else:
        program = decomposed(layer, example, shapes, scan=True)
        call = under_onnxruntime(onnxruntime, program, example)
    assert_computes(call, layer, example, arguments(9, 7), arguments(1, 1))
