"""The interface is nn.LSTM's: shapes, forms, states, refusals; and the way to cells and back."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import pydoc
import re

import pytest
import torch
from layer_cases import Case, loop
from op_cases import since
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from lltm_conda import LLTM, LLTMLayer


def shapes_of(result):
    output, (h_n, c_n) = result
    if isinstance(output, PackedSequence):
        return (
            output.data.shape,
            *(None if t is None else t.tolist() for t in output[1:]),
            h_n.shape,
            c_n.shape,
        )
    return output.shape, h_n.shape, c_n.shape


@pytest.mark.parametrize(
    ("layers", "bias", "batch_first", "bidirectional"),
    list(itertools.product((1, 2), *[(False, True)] * 3)),
    ids=str,
)
@pytest.mark.parametrize("given_state", [False, True], ids=["zeros", "state"])
def test_shapes_are_those_of_lstm(layers, bias, batch_first, bidirectional, given_state) -> None:
    arguments = (3, 4, layers, bias, batch_first, 0.0, bidirectional)
    ours = LLTMLayer(*arguments)
    theirs = nn.LSTM(*arguments)
    count = layers * (2 if bidirectional else 1)
    state = (torch.randn(count, 2, 4), torch.randn(count, 2, 4)) if given_state else None
    for input in (torch.randn(2, 2, 3), torch.randn(5, 2, 3) if not batch_first else None):
        if input is not None:
            assert shapes_of(ours(input, state)) == shapes_of(theirs(input, state))
    alone = None if state is None else (state[0][:, 0], state[1][:, 0])
    input = torch.randn(5, 3)
    assert shapes_of(ours(input, alone)) == shapes_of(theirs(input, alone))
    packed = pack_sequence([torch.randn(2, 3), torch.randn(5, 3)], enforce_sorted=False)
    assert shapes_of(ours(packed, state)) == shapes_of(theirs(packed, state))


def test_batch_first_is_the_same_layer_turned(device) -> None:
    layer = LLTMLayer(3, 4, device=device)
    turned = LLTMLayer(3, 4, batch_first=True, device=device)
    turned.load_state_dict(layer.state_dict())
    input = torch.randn(5, 2, 3, device=device)
    output, _ = layer(input)
    torch.testing.assert_close(turned(input.transpose(0, 1))[0], output.transpose(0, 1))


def test_one_sequence_without_a_batch(device) -> None:
    layer = LLTMLayer(3, 4, 2, bidirectional=True, device=device)
    input = torch.randn(5, 3)
    h = torch.randn(4, 4)
    c = torch.randn(4, 4)
    input, h, c = (t.to(device) for t in (input, h, c))
    output, (h_n, c_n) = layer(input, (h, c))
    want, (want_h, want_c) = layer(input.unsqueeze(1), (h.unsqueeze(1), c.unsqueeze(1)))
    torch.testing.assert_close((output, h_n, c_n), (want[:, 0], want_h[:, 0], want_c[:, 0]))


def test_an_empty_batch(device) -> None:
    layer = LLTMLayer(3, 4, device=device)
    output, (h_n, c_n) = layer(torch.zeros(5, 0, 3, device=device, requires_grad=True))
    assert (output.shape, h_n.shape, c_n.shape) == ((5, 0, 4), (1, 0, 4), (1, 0, 4))
    output.sum().backward()
    assert not layer.weights_l0.grad.any()


def test_parameters_are_named_as_the_cells(device) -> None:
    layer = LLTMLayer(3, 4, 2, bidirectional=True, device=device)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "weights_l0": (12, 7),
        "bias_l0": (12,),
        "weights_l0_reverse": (12, 7),
        "bias_l0_reverse": (12,),
        "weights_l1": (12, 12),
        "bias_l1": (12,),
        "weights_l1_reverse": (12, 12),
        "bias_l1_reverse": (12,),
    }


def test_a_layer_from_cells_computes_what_they_compute(device) -> None:
    options = {"device": device, "dtype": torch.float64}
    cells = [LLTM(3, 4, **options), LLTM(3, 4, **options)]
    cells += [LLTM(8, 4, **options), LLTM(8, 4, **options)]
    layer = LLTMLayer.from_cells(cells, bidirectional=True)
    for k, cell in enumerate(cells):
        mine = layer.cell(k // 2, reverse=k % 2 == 1)
        for name, value in cell.state_dict().items():
            assert torch.equal(mine.state_dict()[name], value)
    input = torch.randn(5, 2, 3, **options)
    output, _ = layer(input)
    torch.testing.assert_close(output, loop(layer, input)[0])


def test_the_cell_of_a_layer_is_the_layer(device) -> None:
    layer = LLTMLayer(3, 4, device=device)
    cell = layer.cell()
    assert cell.weights is layer.weights_l0
    input = torch.randn(1, 2, 3, device=device)
    h, c = cell(input[0])
    output, (h_n, c_n) = layer(input)
    torch.testing.assert_close((output[0], h_n[0], c_n[0]), (h, h, c))
    h.sum().backward()
    assert layer.bias_l0.grad is not None


def test_a_layer_without_bias_gives_a_cell_with_one_of_zeros() -> None:
    layer = LLTMLayer(3, 4, bias=False)
    cell = layer.cell()
    assert not cell.bias.any() and not cell.bias.requires_grad
    layer.load_cell(cell)
    with pytest.raises(ValueError, match="cell has a bias"):
        layer.load_cell(LLTM(3, 4))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: LLTMLayer(3, 4).cell(1), "no layer=1"),
        (lambda: LLTMLayer(3, 4).cell(0, reverse=True), "reverse=True"),
        (lambda: LLTMLayer(3, 4).load_cell(LLTM(2, 4)), r"\(12, 7\).*got \(12, 6\)"),
        (lambda: LLTMLayer.from_cells([]), "multiple of 1"),
        (lambda: LLTMLayer.from_cells([LLTM(3, 4)], bidirectional=True), "multiple of 2"),
        (lambda: LLTMLayer(3, 0), "hidden_size=0"),
        (lambda: LLTMLayer(3, 4, 0), "num_layers=0"),
        (lambda: LLTMLayer(3, 4, dropout=1.5), "dropout.*1.5"),
        (lambda: LLTMLayer(3, 4, dropout=True), "dropout.*bool"),
        (lambda: LLTMLayer(3, 4, dropout="0.5"), "dropout.*str"),
        (lambda: LLTMLayer(3, 4, proj_size=2), "proj_size=0, got 2.*projections"),
        (lambda: LLTMLayer(3, 4, checkpoint=0), "checkpoint.*0"),
    ],
)
def test_what_does_not_fit_is_refused(call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_dropout_acts_between_layers_in_training_only() -> None:
    torch.manual_seed(0)
    layer = LLTMLayer(3, 16, 2, dropout=0.5)
    input = torch.randn(4, 2, 3)
    assert not torch.equal(layer(input)[0], layer(input)[0])
    layer.eval()
    assert torch.equal(layer(input)[0], layer(input)[0])
    with pytest.warns(UserWarning, match="num_layers=1"):
        LLTMLayer(3, 4, dropout=0.5)


REFUSALS = [
    ("input", lambda layer: layer(torch.zeros(5, 2, 4)), r"I = 3.*\(5, 2, 4\)"),
    ("input", lambda layer: layer(torch.zeros(3)), r"I = 3.*\(3,\)"),
    ("input", lambda layer: layer(torch.zeros(0, 2, 3)), "at least one step"),
    ("input.data", lambda layer: layer(pack_sequence([torch.zeros(2, 5)])), "I = 3"),
    ("h_0", lambda layer: layer(torch.zeros(5, 2, 3), (torch.zeros(2, 4),) * 2), r"\(1, 2, 4\)"),
    (
        "c_0",
        lambda layer: layer(torch.zeros(5, 2, 3), (torch.zeros(1, 2, 4), torch.zeros(1, 3, 4))),
        r"got \(1, 3, 4\)",
    ),
    ("hx", lambda layer: layer(torch.zeros(5, 2, 3), torch.zeros(1, 2, 4)), "tuple"),
    (
        "hx",
        lambda layer: layer(torch.zeros(5, 2, 3), (torch.zeros(1, 2, 4),)),
        r"\(h_0, c_0\), got 1 elements",
    ),
    ("c_0", lambda layer: layer(torch.zeros(5, 2, 3), (torch.zeros(1, 2, 4), None)), "NoneType"),
    (
        "input",
        lambda layer: layer(torch.zeros(5, 2, 3).double()),
        r"float32, got torch.float64; convert it with input\.to",
    ),
    (
        "input",
        lambda layer: layer(torch.zeros(5, 2, 3, dtype=torch.complex64)),
        r"complex64.*view_as_real\(input\)",
    ),
    ("input.data", lambda layer: layer(pack_sequence([torch.zeros(2, 3).double()])), "float64"),
    (
        "c_0",
        lambda layer: layer(
            torch.zeros(5, 2, 3), (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4).double())
        ),
        r"float32, got torch.float64",
    ),
]


@pytest.mark.parametrize(("name", "call", "says"), REFUSALS)
def test_a_refusal_names_the_argument(name, call, says) -> None:
    with pytest.raises((RuntimeError, ValueError)) as caught:
        call(LLTMLayer(3, 4))
    assert re.search(rf"\b{re.escape(name)}\b", str(caught.value))
    assert re.search(says, str(caught.value)), caught.value


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64], ids=str)
def test_each_wrong_dtype_of_an_input_is_a_value_error_as_of_lstm(dtype) -> None:
    for layer in (LLTMLayer(3, 4), nn.LSTM(3, 4)):
        with pytest.raises(ValueError, match=str(dtype)):
            layer(torch.zeros(5, 2, 3, dtype=dtype))


FORWARD = ("input", "weights", "bias", "initial_h", "initial_cell")


def raw_arguments():
    shapes = ((5, 2, 3), (12, 7), (12,), (2, 4), (2, 4))
    return dict(zip(FORWARD, (torch.zeros(shape) for shape in shapes), strict=True))


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("kind", ["shape", "dtype", "stride"])
def test_the_raw_op_refuses_by_name(name, kind) -> None:
    arguments = raw_arguments()
    tensor = arguments[name]
    if kind == "shape":
        arguments[name] = torch.zeros(*tensor.shape, 2)
    elif kind == "dtype":
        arguments[name] = tensor.to(torch.int32 if name == "input" else torch.float64)
    else:
        arguments[name] = torch.zeros(*tensor.shape, 2)[..., 0]
    with pytest.raises(RuntimeError, match=rf"lltm: {name} must"):
        torch.ops.lltm.layer_forward(*arguments.values(), False, True, False)


@pytest.mark.parametrize("first", [1, 2])
def test_states_of_one_layer_alone_may_be_stacked(first) -> None:
    arguments = raw_arguments()
    for name in ("initial_h", "initial_cell"):
        arguments[name] = arguments[name].expand(first, -1, -1).contiguous()
    if first == 1:
        _, h, c, _, _ = torch.ops.lltm.layer_forward(*arguments.values(), False, True, False)
        assert h.shape == c.shape == arguments["initial_h"].shape
    else:
        with pytest.raises(RuntimeError, match=r"lltm: initial_h must have shape .*\(1, B, S\)"):
            torch.ops.lltm.layer_forward(*arguments.values(), False, True, False)


@pytest.mark.parametrize("name", FORWARD)
def test_fake_tensors_are_refused_alike(name) -> None:
    arguments = {key: value.to("meta") for key, value in raw_arguments().items()}
    arguments[name] = torch.zeros(*arguments[name].shape, 2, device="meta")
    with pytest.raises(RuntimeError, match=rf"lltm: {name} must have shape"):
        torch.ops.lltm.layer_forward(*arguments.values(), False, True, False)


def backward_arguments():
    forward = raw_arguments()
    output, h, c, gates, cells = torch.ops.lltm.layer_forward(*forward.values(), False, True, False)
    grads = {
        "grad_output": torch.zeros_like(output),
        "grad_final_h": torch.zeros_like(h),
        "grad_final_cell": torch.zeros_like(c),
        "grad_cells": torch.zeros_like(cells),
    }
    return grads | forward | {"output": output, "gates": gates, "cells": cells}


@pytest.mark.parametrize("name", list(backward_arguments()))
def test_the_raw_backward_op_refuses_by_name(name) -> None:
    arguments = backward_arguments()
    arguments[name] = torch.zeros(*arguments[name].shape, 2)
    with pytest.raises(RuntimeError, match=rf"lltm: {name} must"):
        torch.ops.lltm.layer_backward(*arguments.values(), 31, False, False)


def test_a_device_without_kernels_is_named() -> None:
    layer = LLTMLayer(3, 4)
    with pytest.raises(NotImplementedError, match="input must be a dense"):
        layer(torch.zeros(5, 2, 3).to_sparse())


def test_copies_and_pickles(device) -> None:
    layer = LLTMLayer(3, 4, 2, device=device)
    input = torch.randn(5, 2, 3, device=device)
    want = layer(input)[0]
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(input)[0], want)


def test_repr_shows_what_is_not_default() -> None:
    assert repr(LLTMLayer(3, 4)) == "LLTMLayer(3, 4)"
    layer = LLTMLayer(3, 4, 2, dropout=0.5, checkpoint=8)
    assert repr(layer) == "LLTMLayer(3, 4, num_layers=2, dropout=0.5, checkpoint=8)"


def test_script_is_refused_with_the_way_that_works() -> None:
    with pytest.raises(NotImplementedError, match=r"torch\.export"):
        torch.jit.script(LLTMLayer(3, 4))


def test_initial_values_are_bounded() -> None:
    for parameter in LLTMLayer(3, 16, 2).parameters():
        assert 0.2 < parameter.abs().max() <= 0.25


def test_case_without_state_starts_at_zero(device) -> None:
    case = Case(given_state=False)
    layer = case.layer(device=device, dtype=torch.float64)
    (input,) = case.inputs(layer)
    zeros = torch.zeros(1, case.batch, case.state, device=device, dtype=torch.float64)
    from_zeros, _ = layer(input, (zeros, zeros))
    torch.testing.assert_close(layer(input)[0], from_zeros)


def test_a_call_with_the_names_of_lstm_runs_unchanged() -> None:
    names = {"input_size": 3, "hidden_size": 4, "num_layers": 2, "bidirectional": True}
    input = torch.randn(5, 2, 3)
    hx = (torch.randn(4, 2, 4), torch.randn(4, 2, 4))
    for kind in (nn.LSTM, LLTMLayer):
        layer = kind(**names)
        assert {name: getattr(layer, name) for name in names} == names
        output, (h_n, c_n) = layer(input=input, hx=hx)
        assert (output.shape, h_n.shape, c_n.shape) == ((5, 2, 8), (4, 2, 4), (4, 2, 4))


def test_a_call_with_the_names_of_the_cell_is_the_same() -> None:
    layer = LLTMLayer(3, 4)
    other = LLTMLayer(input_features=3, state_size=4)
    other.load_state_dict(layer.state_dict())
    input = torch.randn(5, 2, 3)
    state = (torch.randn(1, 2, 4), torch.randn(1, 2, 4))
    assert torch.equal(layer(input, state)[0], other(input, state=state)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LLTMLayer(3), "hidden_size and state_size, got none"),
        (lambda: LLTMLayer(3, 4, state_size=4), "got hidden_size and state_size"),
        (
            lambda: LLTMLayer(3, 4)(torch.randn(5, 3), hx=(0, 0), state=(0, 0)),
            "got hx and state",
        ),
    ],
)
def test_a_size_that_is_missing_or_given_twice_is_named(call, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("bias", [True, False])
def test_all_weights_are_those_of_each_layer_and_direction(bias: bool) -> None:
    layer = LLTMLayer(3, 4, num_layers=2, bidirectional=True, bias=bias)
    assert [id(p) for cell in layer.all_weights for p in cell] == [*map(id, layer.parameters())]
    assert [len(cell) for cell in layer.all_weights] == [1 + bias] * 4


@pytest.mark.parametrize("name", ["bias", "batch_first", "bidirectional", "keep_cells"])
@pytest.mark.parametrize("value", ["False", 0, None, 1.0], ids=repr)
def test_switches_that_are_no_bool_are_refused_by_name(name, value) -> None:
    with pytest.raises(TypeError, match=f"{name}.*{type(value).__name__}"):
        LLTMLayer(3, 4, **{name: value})


@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers", "checkpoint"])
@pytest.mark.parametrize("value", [3.0, "3", True, torch.tensor(3.0)], ids=repr)
def test_sizes_that_are_no_integer_are_refused_by_name(name, value) -> None:
    sizes = {"input_size": 3, "hidden_size": 4} | {name: value}
    with pytest.raises(TypeError, match=f"integer {name}.*{type(value).__name__}"):
        LLTMLayer(**sizes)


def test_the_arguments_are_those_of_lstm_in_their_order() -> None:
    names = list(inspect.signature(nn.RNNBase.__init__).parameters)[2:]
    ours = list(inspect.signature(LLTMLayer).parameters)
    assert ours[: len(names)] == names
    in_order = (3, 4, 1, True, False, 0.0, False, 0, "meta", torch.float64)
    layer = LLTMLayer(*in_order)
    assert layer.weights_l0.is_meta and layer.weights_l0.dtype == torch.float64
    assert (layer.proj_size, layer.mode) == (0, "LLTM")


HELPERS = {
    "batch": (torch.zeros(5, 2, 3), None, (2, 2, 4)),
    "packed": (torch.zeros(7, 3), torch.tensor([2, 2, 2, 1]), (2, 2, 4)),
}


@pytest.mark.parametrize("case", HELPERS)
def test_public_helpers_of_lstm(case) -> None:
    input, batch_sizes, shape = HELPERS[case]
    good = (torch.zeros(shape), torch.zeros(shape))
    bad = (torch.zeros(shape), torch.zeros(1, 2, 4))
    order = torch.tensor([1, 0])
    state = (torch.randn(shape), torch.randn(shape))
    results = []
    for layer in (LLTMLayer(3, 4, 2), nn.LSTM(3, 4, 2)):
        assert layer.get_expected_hidden_size(input, batch_sizes) == shape
        assert layer.get_expected_cell_size(input, batch_sizes) == shape
        layer.check_input(input, batch_sizes)
        layer.check_forward_args(input, good, batch_sizes)
        with pytest.raises(RuntimeError, match=r"hidden\[1\]"):
            layer.check_forward_args(input, bad, batch_sizes)
        with pytest.raises(RuntimeError):
            layer.check_input(input[..., :2], batch_sizes)
        with pytest.raises(RuntimeError, match="Expected hidden size"):
            layer.check_hidden_size(bad[1], shape)
        assert layer.permute_hidden(state, None) is state
        results.append(layer.permute_hidden(state, order))
    torch.testing.assert_close(*results)


EVERY_KIND_OF_LAYER = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"checkpoint": 2},
    {"keep_cells": False},
]


@pytest.mark.parametrize("options", EVERY_KIND_OF_LAYER, ids=str)
@pytest.mark.parametrize("form", ["batch", "one sequence", "packed", "compiled"])
@pytest.mark.parametrize("recording", [True, False], ids=["grad", "no_grad"])
def test_final_states_can_be_detached_in_place(device, options, form, recording) -> None:
    layer = LLTMLayer(3, 4, **options, device=device)
    input = torch.randn(5, 2, 3, device=device)
    if form == "one sequence":
        input = input[:, 0]
    if form == "packed":
        input = pack_sequence([torch.randn(n, 3, device=device) for n in (2, 5)], False)
    call = torch.compile(layer, backend="aot_eager") if form == "compiled" else layer
    with torch.set_grad_enabled(recording):
        _, (h_n, c_n) = call(input)
        h_n.detach_()
        c_n.detach_()
    assert not h_n.requires_grad and not c_n.requires_grad


def test_truncated_backpropagation_with_detach_in_place(device) -> None:
    layer = LLTMLayer(3, 4, device=device, dtype=torch.float64)
    chunks = torch.randn(3, 5, 2, 3, device=device, dtype=torch.float64)
    state = None
    for chunk in chunks:
        output, state = layer(chunk, state)
        output.square().sum().backward()
        for tensor in state:
            tensor.detach_()
    truncated = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    state = None
    for chunk in chunks:
        output, h, c = loop(layer, chunk, *(() if state is None else state))
        output.square().sum().backward()
        state = (h.detach(), c.detach())
    torch.testing.assert_close(truncated, [p.grad for p in layer.parameters()])


class Doubled(nn.Module):
    def forward(self, half):
        return 2 * half

    def right_inverse(self, whole):
        return whole / 2


def changed(layer: LLTMLayer, how: str) -> LLTMLayer:
    """A layer whose weights are computed from other parameters."""
    if how == "parametrised":
        parametrize.register_parametrization(layer, "weights_l0", Doubled())
    elif how == "weight norm":
        parametrizations.weight_norm(layer, "weights_l0")
    elif how == "old weight norm":
        torch.nn.utils.weight_norm(layer, "weights_l0")
    else:
        prune.l1_unstructured(layer, "weights_l0", amount=0.3)
    return layer


HOW = ["parametrised", "weight norm", "old weight norm", "pruned"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", HOW)
def test_cells_of_layers_with_computed_weights(how) -> None:
    layer = changed(LLTMLayer(3, 4, dtype=torch.float64), how)
    input = torch.randn(1, 2, 3, dtype=torch.float64)
    output, _ = layer(input)
    ((weights, bias),) = layer.all_weights
    torch.testing.assert_close(weights, layer.weights_l0)
    assert bias is layer.bias_l0
    h, _ = layer.cell()(input[0])
    torch.testing.assert_close(h, output[0])
    h.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", ["parametrised", "weight norm", "pruned"])
def test_layers_with_computed_weights_load_cells(how) -> None:
    layer = changed(LLTMLayer(3, 4, dtype=torch.float64), how)
    cell = LLTM(3, 4, dtype=torch.float64)
    layer.load_cell(cell)
    want = cell.weights * layer.weights_l0_mask if how == "pruned" else cell.weights
    torch.testing.assert_close(layer.weights_l0, want)
    torch.testing.assert_close(layer.bias_l0, cell.bias)
    layer(torch.randn(1, 2, 3, dtype=torch.float64))  # pruning computes the weights again
    torch.testing.assert_close(layer.weights_l0, want)


def test_cells_inside_functional_call() -> None:
    layer = LLTMLayer(3, 4)

    class Stepwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x):
            assert self.layer.all_weights[0][0] is self.layer.weights_l0
            return self.layer.cell()(x)[0].sum()

    model = Stepwise()
    values = {name: p.detach() for name, p in model.named_parameters()}
    input = torch.randn(2, 3)
    slopes = torch.func.grad(lambda p: torch.func.functional_call(model, p, (input,)))(values)
    want = torch.autograd.grad(model(input), list(model.parameters()))
    torch.testing.assert_close(list(slopes.values()), list(want))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dynamic_quantization_leaves_a_layer_in_floating_point() -> None:
    model = nn.ModuleList([LLTMLayer(3, 4), LLTM(3, 4), nn.Linear(3, 4)])
    kinds = {LLTMLayer, LLTM, nn.Linear}
    layer, cell, linear = torch.ao.quantization.quantize_dynamic(model, kinds)
    assert [type(layer), type(cell)] == [LLTMLayer, LLTM]
    assert layer.weights_l0.dtype == cell.weights.dtype == torch.float32
    assert type(linear) is not nn.Linear


@since("2.5", "torch.serialization.safe_globals")
@pytest.mark.parametrize("make", [LLTMLayer, LLTM])
def test_a_whole_module_loads_with_safe_globals(make, tmp_path) -> None:
    torch.save(make(3, 4), tmp_path / "module.pt")
    with pytest.raises(pickle.UnpicklingError, match="safe_globals"):
        torch.load(tmp_path / "module.pt", weights_only=True)
    with torch.serialization.safe_globals([make]):
        assert type(torch.load(tmp_path / "module.pt", weights_only=True)) is make


@pytest.mark.parametrize("ours", [LLTM, LLTMLayer])
def test_help_has_no_words_of_nn_module_on_what_is_ours(ours) -> None:
    """A method without a docstring shows that of the method which it overrides."""
    inherited = [
        name
        for base in ours.__mro__[: ours.__mro__.index(nn.Module)]
        for name, value in vars(base).items()
        if inspect.isfunction(value) and hasattr(nn.Module, name) and value.__doc__ is None
        if not name.startswith("_") or name == "__init__"
    ]
    assert inherited == []


@pytest.mark.parametrize(("ours", "theirs"), [(LLTM, nn.LSTMCell), (LLTMLayer, nn.LSTM)])
def test_help_is_no_longer_than_torchs(ours, theirs) -> None:
    """Both end with nn.Module's part, which help() prints of every module."""
    lines = [pydoc.render_doc(one, renderer=pydoc.plaintext).count("\n") for one in (ours, theirs)]
    assert lines[0] <= lines[1]
