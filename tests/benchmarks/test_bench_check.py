"""The check that stands before every figure: right contenders pass it, wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import check as checking
from benchmarks.baselines import CELLS, LAYERS
from benchmarks.baselines.cells import plain_cell
from benchmarks.check import WrongResult, check
from benchmarks.contender import Cell, Request, State, Unavailable, make_inputs
from benchmarks.schema import Size

STEP = Size(5, 3, 7)
SEQUENCE = Size(3, 2, 5, 6)
#: What needs a compiler is looked at before a release: the check stands before every figure.
COMPILED = ("cpp", "cuda", "compile", "compile-loop")


def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.rehearsal,) if name in COMPILED else ()


def names(contenders: dict[str, Callable[..., Cell]]) -> list[object]:
    """Those that need a compiler have a marker; the others run at once."""
    return [pytest.param(name, marks=marks(name)) for name in contenders]


def built(builder: Callable[[Request], Cell], request: Request) -> Cell:
    try:
        return builder(request)
    except Unavailable as error:
        pytest.skip(str(error))


#: A dtype more shows nothing else of those that need a compiler.
CASES = [
    pytest.param(
        name,
        dtype,
        id=f"{name}-{dtype}",
        marks=marks(name),
    )
    for name in CELLS
    for dtype in (torch.float64, torch.float32)
    if dtype is torch.float64 or name not in COMPILED
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("input_gradients", [True, False], ids=["all", "parameters"])
def test_every_cell_equals_float64_in_values_and_gradients(
    name: str, dtype: torch.dtype, device: str, input_gradients: bool
) -> None:
    cell = built(CELLS[name], Request(STEP, dtype, device))
    error = check(cell, make_inputs(STEP, dtype, device, 1), input_gradients=input_gradients)
    assert error < (1e-12 if dtype is torch.float64 else 1e-5)


@pytest.mark.parametrize("name", names(LAYERS))
def test_every_layer_equals_float64_in_values_and_gradients(name: str, device: str) -> None:
    cell = built(LAYERS[name], Request(SEQUENCE, torch.float64, device))
    assert check(cell, make_inputs(SEQUENCE, torch.float64, device, 1)) < 1e-11


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bits_pass_a_step(dtype: torch.dtype, device: str) -> None:
    cell = plain_cell(Request(STEP, dtype, device))
    assert check(cell, make_inputs(STEP, dtype, device, 1)) > 1e-5


def test_the_formula_is_the_packages_definition() -> None:
    reference = pytest.importorskip("lltm_conda.reference", exc_type=ImportError).reference
    inputs = make_inputs(STEP, torch.float64, "cpu", 2)
    module = plain_cell(Request(STEP, torch.float64, "cpu")).module
    p = dict(module.named_parameters())
    expected = reference(inputs.x, p["weights"], p["bias"], *inputs.state)
    torch.testing.assert_close(checking.lltm_step(p, inputs.x, inputs.state), expected)


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
        check(altered(call), make_inputs(STEP, torch.float32, "cpu", 1))


def test_rounding_to_tf32_keeps_ten_bits_to_nearest() -> None:
    last = 2.0**-10
    values = torch.tensor([1.0, 1 + last, 1 + 0.49 * last, 1 + 0.51 * last, -3.0 - 0.9 * last])
    rounded = torch.tensor([1.0, 1 + last, 1.0, 1 + last, -3.0])
    assert checking.rounded_to_tf32(values).tolist() == rounded.tolist()


def test_a_tf32_product_rounds_its_operands_in_backward_as_well() -> None:
    x, exact, bias = (torch.randn(*n, requires_grad=True) for n in ((4, 6), (3, 6), (3,)))
    r_x, r_weight = map(checking.rounded_to_tf32, (x, exact))
    weight = r_weight.clone().requires_grad_()  # the formula rounds the weights once
    cotangent = torch.randn(4, 3)
    output = checking.tf32_linear(x, weight, bias)
    found = torch.autograd.grad(output, (x, weight, bias), cotangent)
    r_cotangent = checking.rounded_to_tf32(cotangent)
    torch.testing.assert_close(output, F.linear(r_x, r_weight, bias))
    want = (r_cotangent @ r_weight, r_cotangent.t() @ r_x, cotangent.sum(0))
    torch.testing.assert_close(found, want)


LONG = Size(1, 16, 16, 200)


def formula_layer(
    size: Size, call: Callable[..., State], dtype: torch.dtype = torch.float32
) -> Cell:
    """The formula as a contender, `call(parameters, x, state)`."""
    cell = LAYERS["python-loop"](Request(size, dtype, "cpu"))
    p = checking.parameters(cell)
    return Cell("lltm", cell.module, lambda x, state: call(p, x, state))


def coarse(linear: checking.Linear) -> Cell:
    """A layer that multiplies by `linear`."""
    return formula_layer(
        LONG, lambda p, x, state: checking.run_formula("lltm", p, x, state, linear=linear)
    )


@pytest.mark.parametrize("times", [1.0, 6.0])
def test_where_tf32_is_allowed_a_sequence_may_be_as_coarse_and_no_coarser(
    times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        exact = F.linear(x, weight, bias)
        return exact + times * (checking.tf32_linear(x, weight, bias) - exact)

    monkeypatch.setattr(checking, "tf32_allowed", lambda *_: True)
    monkeypatch.setattr(checking, "TF32_TOLERANCE", 0.0)  # what the rounding explains, and no more
    inputs = make_inputs(LONG, torch.float32, "cpu", 1)
    if times > 2:
        with pytest.raises(WrongResult, match="differs from float64"):
            check(coarse(linear), inputs)
    else:
        assert check(coarse(linear), inputs) > 1e-5


@pytest.mark.slow
def test_a_sequence_that_multiplies_errors_passes_however_long_it_is() -> None:
    size = Size(16, 64, 64, 1000)
    cell = formula_layer(size, lambda p, x, state: checking.run_formula("lltm", p, x, state))
    inputs = make_inputs(size, torch.float32, "cpu", 1)

    def d_input(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(cell.call(x, inputs.state), x, inputs.cotangents)[0]

    one_bit_more = inputs.x * (1 + torch.finfo(torch.float32).eps)
    moved = checking.relative_error(d_input(one_bit_more), d_input(inputs.x).double())
    assert moved > 1e-3 > 10 * check(cell, inputs)


def _scaled(value: Tensor, step: int, by: float) -> Tensor:
    value = value.clone()
    value[step] *= by
    return value


@pytest.mark.parametrize(
    ("in_backward", "says"), [(False, "output0"), (True, "d_input")], ids=["output", "gradient"]
)
@pytest.mark.parametrize("step", [0, 100, 199])
def test_one_wrong_step_of_a_long_sequence_is_caught(
    step: int, in_backward: bool, says: str
) -> None:
    def call(p: dict[str, Tensor], x: Tensor, state: State) -> State:
        if in_backward:
            x = x.clone()
            x.register_hook(lambda grad: _scaled(grad, step, 1.001))
        output, *final = checking.run_formula("lltm", p, x, state)
        return (output if in_backward else _scaled(output, step, 1.001), *final)

    with pytest.raises(WrongResult, match=says):
        check(formula_layer(LONG, call), make_inputs(LONG, torch.float32, "cpu", 1))


@pytest.mark.slow
def test_a_long_sequence_that_rounds_c_to_sixteen_bits_at_every_step_is_caught() -> None:
    size = Size(4, 16, 16, 400)

    def rounding(p: dict[str, Tensor], x: Tensor, state: State) -> State:
        state = tuple(s[0] for s in state)
        outputs = []
        for x_t in x:
            state = checking.lltm_step(p, x_t, state)
            outputs.append(state[0])
        return (torch.stack(outputs), *(s[None] for s in state))

    cell = formula_layer(size, rounding, torch.bfloat16)
    with pytest.raises(WrongResult, match="differs from float64"):
        check(cell, make_inputs(size, torch.bfloat16, "cpu", 1))


def test_a_quarter_is_the_most_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def far_off(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return 3 * F.linear(x, weight, bias)

    def call(p: dict[str, Tensor], x: Tensor, state: State) -> State:
        x = x.clone()
        x.register_hook(lambda grad: 1.26 * grad)
        return checking.run_formula("lltm", p, x, state)

    monkeypatch.setattr(checking, "tf32_allowed", lambda *_: True)
    monkeypatch.setattr(checking, "tf32_linear", far_off)
    with pytest.raises(WrongResult, match=r"d_input differs .* allowed is 2\.50e-01"):
        check(formula_layer(LONG, call), make_inputs(LONG, torch.float32, "cpu", 1))


def test_a_step_that_reads_another_h_than_it_returns_is_caught() -> None:
    def call(p: dict[str, Tensor], x: Tensor, state: State) -> State:
        state = tuple(s[0] for s in state)
        outputs = []
        late = state[0]
        for x_t in x:
            new_state = checking.lltm_step(p, x_t, (late, state[1]))
            late = state[0]
            state = new_state
            outputs.append(state[0])
        return (torch.stack(outputs), *(s[None] for s in state))

    with pytest.raises(WrongResult, match="output0"):
        check(formula_layer(LONG, call), make_inputs(LONG, torch.float32, "cpu", 1))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_batch_checked_in_parts_is_checked_as_a_whole(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = make_inputs(SEQUENCE, torch.float64, "cpu", 1)
    cell = LAYERS["python-loop"](Request(SEQUENCE, torch.float64, "cpu"))
    whole = check(cell, inputs)
    monkeypatch.setattr(checking, "LARGEST_PART", rows * SEQUENCE.steps * SEQUENCE.state)
    assert abs(check(cell, inputs) - whole) < 1e-13


def test_inputs_are_random_and_seeded() -> None:
    first, again, other = (make_inputs(STEP, torch.float32, "cpu", seed) for seed in (1, 1, 2))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    assert all(t.count_nonzero() == t.numel() for t in (first.x, *first.state, *first.cotangents))
