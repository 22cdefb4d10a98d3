"""LLTM as a module of torch.nn: construction, saving, loading, copying, description."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch
from op_cases import assert_agree, every_dtype, make_inputs
from torch import nn

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
    for got, want in zip(module(x), module(x, (zeros, zeros)), strict=True):
        assert torch.equal(got, want)


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
    module, other = cell(device=device), cell(device=device)
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
