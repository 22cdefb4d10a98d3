"""The check that stands before every figure: right contenders pass it, wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import problem
from benchmarks.baselines import Request, Unavailable, cell_contenders, layer_contenders
from benchmarks.baselines.plain import plain_cell
from benchmarks.problem import Cell, State, WrongResult, check, make_inputs
from benchmarks.schema import Size

STEP = Size(5, 3, 7)
SEQUENCE = Size(3, 2, 5, 6)
SLOW_TO_BUILD = ("cpp", "cuda", "compile", "compile-reduce-overhead", "cpp-loop", "cuda-loop")


def names(contenders: dict[str, Callable[..., Cell]]) -> list[object]:
    """Those that need a compiler are slow; the others run at once."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW_TO_BUILD else name
        for name in contenders
    ]


def built(builder: Callable[[Request], Cell], request: Request) -> Cell:
    try:
        return builder(request)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", names(cell_contenders()))
@pytest.mark.parametrize("input_gradients", [True, False], ids=["all", "parameters"])
def test_every_cell_equals_float64_in_values_and_gradients(
    name: str, dtype: torch.dtype, device: str, input_gradients: bool
) -> None:
    cell = built(cell_contenders()[name], Request(STEP, dtype, device))
    error = check(cell, STEP, make_inputs(STEP, dtype, device, 1), input_gradients=input_gradients)
    assert error < (1e-12 if dtype is torch.float64 else 1e-5)


@pytest.mark.parametrize("name", names(layer_contenders()))
def test_every_layer_equals_float64_in_values_and_gradients(name: str, device: str) -> None:
    cell = built(layer_contenders()[name], Request(SEQUENCE, torch.float64, device))
    states = problem.STATES[cell.kind]
    assert check(cell, SEQUENCE, make_inputs(SEQUENCE, torch.float64, device, 1, states=states)) < (
        1e-11
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bits_pass_a_step(dtype: torch.dtype, device: str) -> None:
    cell = plain_cell(Request(STEP, dtype, device))
    assert check(cell, STEP, make_inputs(STEP, dtype, device, 1)) > 1e-5


def test_the_formula_is_the_packages_definition() -> None:
    reference = pytest.importorskip("lltm_conda.reference", exc_type=ImportError).reference
    inputs = make_inputs(STEP, torch.float64, "cpu", 2)
    module = plain_cell(Request(STEP, torch.float64, "cpu")).module
    p = dict(module.named_parameters())
    expected = reference(inputs.x, p["weights"], p["bias"], *inputs.state)
    torch.testing.assert_close(problem.lltm_step(p, inputs.x, inputs.state), expected)


def altered(call: Callable[[nn.Module, Tensor, State], State]) -> Cell:
    cell = plain_cell(Request(STEP, torch.float32, "cpu"))
    return Cell("lltm", cell.module, lambda x, state: call(cell.module, x, state))


class _WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 1.001


def unwritten(module: nn.Module, x: Tensor, state: State) -> State:
    new_h, new_c = module(x, state)
    rows = torch.ones_like(new_h)
    rows[-1] = float("nan")
    return new_h * rows, new_c


def tanh_for_elu(module: nn.Module, x: Tensor, state: State) -> State:
    h, c = state
    z = F.linear(torch.cat((h, x), 1), module.weights, module.bias)
    z_i, z_o, z_c = z.chunk(3, 1)
    new_c = c + torch.tanh(z_c) * z_i.sigmoid()
    return new_c.tanh() * z_o.sigmoid(), new_c


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m, x, s: m(x, s)[::-1], "output0"),
        (lambda m, x, s: (m(x, s)[0], m(x, s)[1] * 1.001), "output1"),
        (lambda m, x, s: m(_WrongGradient.apply(x), s), "d_input"),
        (lambda m, x, s: m(x, (s[0], _WrongGradient.apply(s[1]))), "d_state1"),
        (unwritten, "output0 differs from float64 by inf"),
        (tanh_for_elu, "output"),
    ],
    ids=["swapped", "scaled", "input-gradient", "cell-gradient", "unwritten", "other-formula"],
)
def test_a_wrong_contender_is_caught(
    call: Callable[[nn.Module, Tensor, State], State], says: str
) -> None:
    with pytest.raises(WrongResult, match=says):
        check(altered(call), STEP, make_inputs(STEP, torch.float32, "cpu", 1))


def test_inputs_are_random_and_seeded() -> None:
    first, again, other = (make_inputs(STEP, torch.float32, "cpu", seed) for seed in (1, 1, 2))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    assert all(t.count_nonzero() == t.numel() for t in (first.x, *first.state, first.grad_output))
