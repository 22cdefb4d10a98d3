"""LLTM as a module of torch.nn: construction, saving, loading, copying, description."""

from __future__ import annotations

import copy
import inspect
import io
import math
import pickle
import re

import pytest
import torch
from op_cases import assert_agree, every_dtype, make_inputs, since
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.flop_counter import FlopCounterMode

import lltm_conda
from lltm_conda import LLTM

RESULTS = ("new_h", "new_cell")


def arguments(batch=3, **options):
    inputs = make_inputs(batch, **options)
    return inputs.input, (inputs.old_h, inputs.old_cell)


def agrees(module, weights, bias) -> None:
    x, (h, c) = arguments(device=weights.device, dtype=weights.dtype)
    with torch.no_grad():
        want = lltm_conda.reference(x, weights, bias, h, c)
        assert_agree(module(x, (h, c)), want, 1e-12, RESULTS)


def cell(**options) -> LLTM:
    return LLTM(4, 5, dtype=torch.float64, **options)


def test_parameters_have_the_tutorials_names_and_shapes() -> None:
    shapes = {name: tuple(p.shape) for name, p in LLTM(4, 5).named_parameters()}
    assert shapes == {"weights": (15, 9), "bias": (15,)}


def test_attributes_tell_the_sizes() -> None:
    module = LLTM(4, 5)
    assert (module.input_features, module.state_size) == (4, 5)


def test_module_computes_the_definition(device) -> None:
    module = cell(device=device)
    agrees(module, module.weights, module.bias)


def test_state_defaults_to_zeros(device) -> None:
    module = cell(device=device)
    x, (h, _) = arguments(device=device)
    zeros = torch.zeros_like(h)
    for actual, want in zip(module(x), module(x, (zeros, zeros)), strict=True):
        assert torch.equal(actual, want)


def test_initial_values_fill_the_tutorials_range() -> None:
    torch.manual_seed(0)
    module = LLTM(400, 100)
    limit = 1 / math.sqrt(100)
    for parameter in module.state_dict().values():
        assert parameter.abs().max() <= limit
        assert parameter.std() == pytest.approx(limit / math.sqrt(3), rel=0.1)


def test_same_seed_gives_the_same_module() -> None:
    modules = []
    for _ in range(2):
        torch.manual_seed(7)
        modules.append(LLTM(4, 5))
    for a, b in zip(*(m.parameters() for m in modules), strict=True):
        assert torch.equal(a, b)


@every_dtype
def test_factory_arguments(device, dtype) -> None:
    module = LLTM(4, 5, device=device, dtype=dtype)
    assert {(p.device, p.dtype) for p in module.parameters()} == {(device, dtype)}


@every_dtype
def test_moving_the_module_moves_its_parameters(device, dtype) -> None:
    module = LLTM(4, 5).to(device, dtype)
    x, state = arguments(device=device, dtype=dtype)
    for result in module(x, state):
        assert (result.device, result.dtype) == (device, dtype)


def test_meta_device_then_materialised(device) -> None:
    module = cell(device="meta")
    assert all(p.is_meta for p in module.parameters())
    module.to_empty(device=device)
    module.reset_parameters()
    assert all(p.isfinite().all() and p.abs().max() <= 5**-0.5 for p in module.parameters())
    agrees(module, module.weights, module.bias)


def test_meta_device_runs_for_shapes() -> None:
    module = cell(device="meta")
    x, state = arguments(device="meta")
    for result in module(x, state):
        assert result.is_meta and result.shape == (3, 5)


def test_device_context_is_honoured() -> None:
    with torch.device("meta"):
        assert LLTM(4, 5).weights.is_meta


def test_description_names_the_sizes() -> None:
    description = repr(LLTM(4, 5))
    assert description.startswith("LLTM(") and "\n" not in description
    assert "4" in description and "5" in description


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_duplicates_are_equal_and_separate(device, duplicate) -> None:
    module = cell(device=device)
    twin = duplicate(module)
    agrees(twin, module.weights, module.bias)
    with torch.no_grad():
        twin.weights.zero_()
    assert module.weights.any()


def test_whole_module_survives_torch_save() -> None:
    module = cell()
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    agrees(torch.load(buffer, weights_only=False), module.weights, module.bias)


def test_state_dict_survives_a_weights_only_load(device) -> None:
    module = cell(device=device)
    other = cell(device=device)
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    agrees(other, module.weights, module.bias)


class TutorialLLTM(nn.Module):
    """The module of the C++ extension tutorial (bias of 3S) and of its repository (1, 3S)."""

    def __init__(self, input_features, state_size, bias_shape) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(3 * state_size, input_features + state_size))
        self.bias = nn.Parameter(torch.empty(bias_shape))
        for weight in self.parameters():
            nn.init.uniform_(weight, -1 / math.sqrt(state_size), 1 / math.sqrt(state_size))


tutorial_shapes = pytest.mark.parametrize("bias_shape", [(15,), (1, 15)], ids=str)


@tutorial_shapes
def test_state_dicts_of_the_tutorial_load_unchanged(bias_shape) -> None:
    saved = TutorialLLTM(4, 5, bias_shape).double().state_dict()
    before = {name: t.clone() for name, t in saved.items()}
    module = cell()
    module.load_state_dict(saved, strict=True)
    assert module.bias.shape == (15,)
    agrees(module, before["weights"], before["bias"])
    assert all(
        torch.equal(t, before[name]) and t.shape == before[name].shape for name, t in saved.items()
    )


@tutorial_shapes
@pytest.mark.parametrize("assign", [False, True], ids=["copy", "assign"])
def test_nested_tutorial_state_dicts_load(bias_shape, assign) -> None:
    saved = nn.ModuleDict({"encoder": TutorialLLTM(4, 5, bias_shape)}).double().state_dict()
    model = nn.ModuleDict({"encoder": cell()})
    model.load_state_dict(saved, strict=True, assign=assign)
    assert model["encoder"].bias.shape == (15,)
    agrees(model["encoder"], saved["encoder.weights"], saved["encoder.bias"])


@pytest.mark.parametrize("bias_shape", [(14,), (2, 15), (15, 1)], ids=str)
def test_state_dicts_of_another_shape_are_refused(bias_shape) -> None:
    with pytest.raises(RuntimeError, match="size mismatch for bias"):
        LLTM(4, 5).load_state_dict(TutorialLLTM(4, 5, bias_shape).state_dict())


def test_a_missing_bias_is_reported() -> None:
    with pytest.raises(RuntimeError, match=r"Missing key.*bias"):
        LLTM(4, 5).load_state_dict({"weights": torch.zeros(15, 9)})


def test_our_state_dict_loads_into_the_tutorials_module() -> None:
    TutorialLLTM(4, 5, (15,)).load_state_dict(LLTM(4, 5).state_dict(), strict=True)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [((-1, 5), "input_features"), ((4, 0), "state_size"), ((4, -5), "state_size")],
)
def test_impossible_sizes_are_refused_by_name(sizes, name) -> None:
    with pytest.raises(ValueError, match=name):
        LLTM(*sizes)


def test_training_lowers_the_loss(device) -> None:
    torch.manual_seed(0)
    module = LLTM(4, 5, device=device)
    x, state = arguments(16, device=device, dtype=torch.float32)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (module(x, state)[0] - 0.25).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.25 * losses[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_is_refused_with_a_message() -> None:
    with pytest.raises(
        (RuntimeError, NotImplementedError), match=r"(?s)TorchScript.*torch\.(export|compile)"
    ):
        torch.jit.script(LLTM(4, 5))


def test_a_parametrised_module_trains() -> None:
    module = torch.nn.utils.parametrizations.weight_norm(cell(), "weights")
    new_h, _ = module(*arguments())
    new_h.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_the_names_of_lstm_cell(device) -> None:
    module = LLTM(input_size=4, hidden_size=5, bias=True, device=device, dtype=torch.float64)
    assert (module.input_size, module.hidden_size) == (4, 5)
    x, state = arguments(device=device)
    for got, want in zip(module(x, hx=state), module(x, state), strict=True):
        assert torch.equal(got, want)
    with pytest.raises(TypeError, match="state and hx"):
        module(x, state, hx=state)


def test_the_arguments_are_those_of_lstm_cell_in_their_order() -> None:
    names = list(inspect.signature(nn.LSTMCell.__init__).parameters)[3:]
    assert list(inspect.signature(LLTM).parameters)[2:5] == names
    module = LLTM(4, 5, False, "meta", torch.float64)  # noqa: FBT003 - the order is tested
    assert module.weights.is_meta and module.weights.dtype == torch.float64


def test_a_cell_without_bias(device) -> None:
    module = cell(bias=False, device=device)
    assert module.bias is None and set(module.state_dict()) == {"weights"}
    assert "bias=False" in repr(module)
    agrees(module, module.weights, torch.zeros(15, device=device, dtype=torch.float64))
    module.load_state_dict(cell(bias=False).state_dict())
    new_h, _ = module(arguments(device=device)[0])
    new_h.sum().backward()
    assert module.weights.grad is not None


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "state"])
def test_one_dimensional_input(device, given) -> None:
    module = cell(device=device)
    x, (h, c) = arguments(1, device=device)
    got = module(x[0], (h[0], c[0]) if given else None)
    want = module(x, (h, c) if given else None)
    for g, w in zip(got, want, strict=True):
        assert g.shape == (5,) and torch.equal(g, w[0])


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


STATE = (zeros(3, 5), zeros(3, 5))
REFUSALS = [
    ("input", (zeros(3, 6), STATE), r"I = 4, got \(3, 6\)"),
    ("input", (zeros(3, 6), None), r"I = 4, got \(3, 6\)"),
    ("input", (zeros(6), None), r"I = 4, got \(6,\)"),
    ("input", (zeros(2, 3, 4), None), r"got \(2, 3, 4\)"),
    ("input", (zeros(3, 4, dtype=torch.float64), STATE), r"float32, got torch\.float64.*input\.to"),
    ("input", (zeros(3, 4, dtype=torch.complex64), STATE), r"complex64.*view_as_real"),
    ("input", ([1.0, 2.0], None), "list"),
    ("input", (pack_sequence([zeros(3, 4)]), None), "PackedSequence; .*LLTMLayer"),
    ("state", (zeros(3, 4), STATE[:1]), r"\(h, c\), got 1 elements"),
    ("state", (zeros(2, 4), zeros(2, 2, 5)), r"\(h, c\), got Tensor"),
    ("c of state", (zeros(3, 4), (zeros(3, 5), None)), "NoneType"),
    ("h of state", (zeros(3, 4), (zeros(2, 5), zeros(3, 5))), r"\(3, 5\), got \(2, 5\)"),
    ("c", (zeros(3, 4), (zeros(3, 5), zeros(3, 5, dtype=torch.float64))), "got torch.float64"),
]


@pytest.mark.parametrize(("name", "call", "says"), REFUSALS)
def test_a_refusal_names_what_the_user_gave(name, call, says) -> None:
    refusals = (RuntimeError, TypeError, ValueError)
    with pytest.raises(refusals, match=rf"lltm: {name}\b.*{says}") as caught:
        LLTM(4, 5)(*call)
    assert "weights" not in str(caught.value)


#: How to make the kind, and how its message converts it back.
KINDS = {
    "nested": (
        lambda x: torch.nested.as_nested_tensor([*x]),
        lambda input: torch.nested.to_padded_tensor(input, 0.0),
        "torch.nested.to_padded_tensor(input, 0.0)",
    ),
    "jagged": (
        lambda x: torch.nested.as_nested_tensor([*x], layout=torch.jagged),
        lambda input: torch.nested.to_padded_tensor(input, 0.0),
        "torch.nested.to_padded_tensor(input, 0.0)",
    ),
    "quantized": (
        lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
        lambda input: input.dequantize(),
        "input.dequantize()",
    ),
    "sparse": (lambda x: x.to_sparse(), lambda input: input.to_dense(), "input.to_dense()"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch calls some of them unfinished or old
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [LLTM, lltm_conda.LLTMLayer], ids=lambda m: m.__name__)
def test_a_kind_of_tensor_without_kernels_is_refused_with_the_way_to_one(make, kind) -> None:
    convert, convert_back, says = KINDS[kind]
    input = convert(zeros(3, 2, 4))
    with pytest.raises(NotImplementedError, match=re.escape(says)):
        make(4, 5)(input)
    lltm_conda.LLTMLayer(4, 5)(convert_back(input))


@pytest.mark.parametrize("name", ["input_features", "state_size"])
@pytest.mark.parametrize("value", [3.0, "3", True], ids=repr)
def test_sizes_that_are_no_integer_are_refused_by_name(name, value) -> None:
    with pytest.raises(TypeError, match=f"integer {name}.*{type(value).__name__}"):
        LLTM(**({"input_features": 4, "state_size": 5} | {name: value}))


def test_a_bias_that_is_no_bool_is_refused() -> None:
    with pytest.raises(TypeError, match=r"bias.*str"):
        LLTM(4, 5, bias="False")


def test_a_dtype_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"dtype, got str: 'float32'.*torch\.float32"):
        LLTM(4, 5, dtype="float32")


def test_a_complex_argument_of_the_function_is_not_sent_to_float() -> None:
    inputs = make_inputs(dtype=torch.complex64)
    with pytest.raises(RuntimeError, match=r"input .*complex64.*view_as_real\(input\)"):
        lltm_conda.lltm(*inputs)


class Model(nn.Module):
    def __init__(self, part) -> None:
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)[0].sum()


@pytest.mark.parametrize("make", [LLTM, lltm_conda.LLTMLayer], ids=lambda m: m.__name__)
def test_fx_records_a_module_as_one_call(make) -> None:
    model = Model(make(4, 5))
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["part"]
    x = torch.randn(3, 4) if make is LLTM else torch.randn(2, 3, 4)
    assert torch.equal(traced(x), model(x))
    with pytest.raises(torch.fx.proxy.TraceError, match="wrap it"):
        torch.fx.symbolic_trace(model.part)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [LLTM, lltm_conda.LLTMLayer], ids=lambda m: m.__name__)
def test_jit_trace_with_gradients(make) -> None:
    model = Model(make(4, 5))
    shape = (3, 4) if make is LLTM else (2, 3, 4)
    traced = torch.jit.trace(model, (torch.randn(shape),))
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    x = torch.randn(shape)
    assert torch.equal(loaded(x), model(x))
    got = torch.autograd.grad(traced(x), list(model.parameters()))
    want = torch.autograd.grad(model(x), list(model.parameters()))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("make", [LLTM, lltm_conda.LLTMLayer], ids=lambda m: m.__name__)
@since("2.6", "register_vmap")
def test_functionalize(make) -> None:
    model = Model(make(4, 5))
    x = torch.randn(3, 4) if make is LLTM else torch.randn(2, 3, 4)
    torch.testing.assert_close(torch.func.functionalize(model)(x), model(x))


def other_strides(tensor):
    return tensor.movedim(0, -1).contiguous().movedim(-1, 0)


@pytest.mark.parametrize("make", [LLTM, lltm_conda.LLTMLayer], ids=lambda m: m.__name__)
def test_hooks_may_hand_back_other_strides(device, make) -> None:
    model = Model(make(4, 5, device=device))
    x = torch.randn((3, 4) if make is LLTM else (2, 3, 4), device=device)
    want = torch.autograd.grad(model(x), list(model.parameters()))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, other_strides):
        loss = model(x)
    torch.testing.assert_close(torch.autograd.grad(loss, list(model.parameters())), want)


@pytest.mark.parametrize("make", [LLTM, lltm_conda.LLTMLayer], ids=lambda m: m.__name__)
def test_flop_counter(device, make) -> None:
    model = Model(make(4, 5, device=device))
    x = torch.randn((3, 4) if make is LLTM else (2, 3, 4), device=device, requires_grad=True)
    forward = 2 * x[..., 0].numel() * 15 * 9
    with FlopCounterMode(display=False) as counter:
        loss = model(x)
    assert counter.get_total_flops() == forward
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    # The cell has no gradient of a state; the recurrence of a layer needs them.
    of_states = forward * 5 // 9 if make is LLTM else 0
    # A small step on a GPU saves no gates, and computes them again.
    of_gates = forward if make is LLTM and device.type == "cuda" else 0
    assert counter.get_total_flops() == 2 * forward - of_states + of_gates


@pytest.mark.parametrize("order", ["counter first", "package first"])
@pytest.mark.slow
def test_the_flop_counter_knows_the_op_in_any_order_of_imports(tmp_path, order, forked) -> None:
    imports = ["from torch.utils.flop_counter import FlopCounterMode", "import lltm_conda"]
    if order == "package first":
        imports.reverse()
    count = """
cell = lltm_conda.LLTM(4, 5)
custom = {torch.ops.lltm.forward: lambda *_, **__: 7}
for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
    with mode(), FlopCounterMode(display=False) as counter:
        cell(torch.randn(3, 4))
    assert counter.get_total_flops() == 2 * 3 * 15 * 9, (mode, counter.get_total_flops())
    with mode(), FlopCounterMode(display=False, custom_mapping=custom) as counter:
        cell(torch.randn(3, 4))
    assert counter.get_total_flops() == 7, mode
"""
    run = forked.run("\n".join(["import torch", *imports, count]), cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(torch.__version__ < "2.6", reason="the counter does not ask an op there")
def test_an_import_of_the_package_leaves_the_flop_counter_alone(tmp_path, forked) -> None:
    program = (
        "import sys, torch\nhooks = [*sys.meta_path]\n"
        "assert 'torch.utils.flop_counter' not in sys.modules\nimport lltm_conda\n"
        "assert 'torch.utils.flop_counter' not in sys.modules\nassert sys.meta_path == hooks"
    )
    run = forked.run(program, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", ["forward", "backward", "layer_forward", "layer_backward"])
def test_the_raw_ops_are_tagged_for_compilers(name) -> None:
    assert torch.Tag.pt2_compliant_tag in getattr(torch.ops.lltm, name).default.tags
