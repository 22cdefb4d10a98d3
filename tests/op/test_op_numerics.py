"""The mathematics at its edges: kinks, tails, infinities, NaN, and what 16 bits can hold.

With weights of zero the pre-activations are the bias, so every z can be chosen exactly.
"""

from __future__ import annotations

import math
import random

import pytest
import torch
from op_cases import (
    DTYPES,
    NAMES,
    Inputs,
    assert_agree,
    every_dtype,
    every_entry,
    gradients,
    in_float64,
    make_inputs,
    through_function,
)

import lltm_conda

INF = float("inf")
NAN = float("nan")
EPSILON = {dtype: torch.finfo(dtype).eps for dtype in DTYPES}


def chosen(z_i, z_o, z_c, cell, *, dtype, device) -> Inputs:
    """Inputs of batch 1 whose pre-activations are the given lists (scalars are broadcast)."""
    z_i, z_o, z_c, cell = torch.broadcast_tensors(
        *(torch.as_tensor(v, dtype=torch.float64) for v in (z_i, z_o, z_c, cell))
    )
    state = z_i.numel()
    values = (
        torch.zeros(1, 1),
        torch.zeros(3 * state, state + 1),
        torch.cat([z_i.reshape(-1), z_o.reshape(-1), z_c.reshape(-1)]),
        torch.zeros(1, state),
        cell.reshape(1, -1),
    )
    return Inputs(*(v.to(device, dtype).contiguous().requires_grad_() for v in values))


def bias_gradient(inputs: Inputs, through: int) -> tuple[torch.Tensor, ...]:
    """dz_i, dz_o, dz_c for an incoming gradient of one through new_h (0) or new_cell (1)."""
    output = through_function(*inputs)[through]
    (gradient,) = torch.autograd.grad(output.sum(), inputs.bias)
    return gradient.detach().to("cpu", torch.float64).chunk(3)


@every_dtype
def test_derivative_of_elu_at_zero_is_one(device, dtype) -> None:
    _, _, dz_c = bias_gradient(
        chosen(0.0, 0.0, [0.0, -0.0], 0.0, dtype=dtype, device=device), through=1
    )
    assert dz_c.tolist() == [0.5, 0.5]  # sigmoid(0) times one


TINY = {
    torch.float64: [-1e-3, -1e-9, -1e-17, -1e-300],
    torch.float32: [-1e-3, -1e-8, -1e-30],
    torch.float16: [-1e-2, -1e-3, -1e-6],
    torch.bfloat16: [-1e-2, -1e-5, -1e-30],
}


@every_dtype
def test_tiny_negative_z_has_no_dead_zone_forward(device, dtype) -> None:
    inputs = chosen(
        INF, 0.0, TINY[dtype], 0.0, dtype=dtype, device=device
    )  # i is one: new_cell is elu(z)
    new_cell = through_function(*inputs)[1]
    want = torch.expm1(inputs.bias.detach().cpu().double().chunk(3)[2])
    actual = new_cell.detach().cpu().double().flatten()
    torch.testing.assert_close(
        actual, want, rtol=2 * EPSILON[dtype], atol=1e-7 if dtype == torch.float16 else 0
    )


@every_dtype
def test_tiny_negative_z_has_no_dead_zone_backward(device, dtype) -> None:
    inputs = chosen(0.0, 0.0, TINY[dtype], 0.0, dtype=dtype, device=device)
    _, _, dz_c = bias_gradient(inputs, through=1)
    want = 0.5 * torch.exp(inputs.bias.detach().cpu().double().chunk(3)[2])
    torch.testing.assert_close(dz_c, want, rtol=4 * EPSILON[dtype], atol=0)


EXTREMES = [-750.0, -90.0, -1.0, 0.0, 1.0, 90.0, 750.0]


def every_extreme(dtype, device) -> Inputs:
    """All 343 triples of extreme pre-activations, one a column, with a cell state of 0.3."""
    z_i, z_o, z_c = torch.cartesian_prod(*[torch.tensor(EXTREMES)] * 3).unbind(1)
    return chosen(z_i, z_o, z_c, 0.3, dtype=dtype, device=device)


@every_dtype
def test_large_pre_activations_forward(device, dtype) -> None:
    inputs = every_extreme(dtype, device)
    want = lltm_conda.reference(*in_float64(inputs))
    for actual, exact in zip(through_function(*inputs), want, strict=True):
        assert actual.isfinite().all()
        rtol = 1e-13 if dtype == torch.float64 else 4 * EPSILON[dtype]
        torch.testing.assert_close(
            actual.cpu().double(), exact, rtol=rtol, atol=1e-7 if dtype == torch.float16 else 1e-37
        )


@every_dtype
@pytest.mark.parametrize("through", [0, 1], ids=["new_h", "new_cell"])
def test_large_pre_activations_backward(device, dtype, through) -> None:
    inputs = every_extreme(dtype, device)
    exact = in_float64(inputs)
    (actual,) = torch.autograd.grad(through_function(*inputs)[through].sum(), inputs.bias)
    (want,) = torch.autograd.grad(lltm_conda.reference(*exact)[through].sum(), exact[2])
    assert actual.isfinite().all(), "0 * inf, most likely"
    # 1 - sigmoid(90) is 0 in double precision too: absolute error relative to the largest z.
    atol = 750 * 2 * (EPSILON[dtype] if dtype == torch.float64 else EPSILON[torch.float32])
    rtol = 1e-12 if dtype == torch.float64 else 8 * EPSILON[dtype]
    torch.testing.assert_close(actual.cpu().double(), want, rtol=rtol, atol=atol)


@every_entry
def test_large_pre_activations_in_second_derivatives(device, entry) -> None:
    inputs = every_extreme(torch.float64, device)
    exact = in_float64(inputs)

    def second(function, tensors):
        new_h, new_cell = function(*tensors)
        first = gradients(
            [new_h.sum() + new_cell.sum()],
            tensors,
            [torch.ones((), dtype=torch.float64, device=new_h.device)],
            create_graph=True,
        )
        return gradients(
            [sum(g.square().sum() for g in first)],
            tensors,
            [torch.ones((), dtype=torch.float64, device=new_h.device)],
        )

    actual = second(entry, inputs)
    assert all(g.isfinite().all() for g in actual)
    assert_agree(actual, second(lltm_conda.reference, exact), 1e-12, Inputs._fields)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("gate", ["i", "o"])
def test_saved_values_keep_the_slope_of_a_saturated_sigmoid(device, dtype, gate) -> None:
    # A saved 16-bit sigmoid is 1.0 from |z| of 7 to 9 on, and its slope i (1 - i) is then 0.
    z = torch.tensor([6.0, 8.0, 10.0])
    if gate == "i":
        inputs = chosen(z, 0.0, 64.0, 0.0, dtype=dtype, device=device)
        through = 1
        factor = 64.0
    else:
        inputs = chosen(0.0, z, 0.0, 64.0, dtype=dtype, device=device)
        through = 0
        factor = 1.0
    dz_i, dz_o, _ = bias_gradient(inputs, through)
    slope = torch.sigmoid(z.double()) * torch.sigmoid(-z.double())
    actual = dz_i if gate == "i" else dz_o
    torch.testing.assert_close(actual, factor * slope, rtol=4 * EPSILON[dtype] + 1e-2, atol=1e-7)


@every_dtype
def test_sigmoid_is_accurate_in_its_lower_tail(device, dtype) -> None:
    lowest = -10.0 if dtype == torch.float16 else -80.0
    z = torch.linspace(lowest, 5.0, 200).to(dtype)
    inputs = chosen(0.0, z, 0.0, 64.0, dtype=dtype, device=device)  # tanh(64) is one: new_h is o
    actual = through_function(*inputs)[0].detach().cpu().double().flatten()
    rtol = 1e-13 if dtype == torch.float64 else 1e-5 + 2 * EPSILON[dtype]
    torch.testing.assert_close(
        actual, torch.sigmoid(z.double()), rtol=rtol, atol=6e-8 if dtype == torch.float16 else 0
    )


@every_dtype
def test_tanh_of_a_small_cell_is_accurate(device, dtype) -> None:
    smallest = -3.0 if dtype == torch.float16 else -30.0
    cell = torch.logspace(smallest, 1.0, 200, dtype=torch.float64).to(dtype)
    inputs = chosen(0.0, INF, 0.0, torch.cat([cell, -cell]), dtype=dtype, device=device)  # o is one
    actual = through_function(*inputs)[0].detach().cpu().double().flatten()
    want = torch.tanh(torch.cat([cell, -cell]).double())
    rtol = 1e-13 if dtype == torch.float64 else 1e-5 + 2 * EPSILON[dtype]
    torch.testing.assert_close(actual, want, rtol=rtol, atol=0)


@every_dtype
def test_infinite_pre_activations_reach_their_limits(device, dtype) -> None:
    z = [
        # z_i, z_o, z_c, old_cell -> new_h, new_cell
        (INF, INF, 1.0, 0.5, torch.tanh(torch.tensor(1.5)).item(), 1.5),
        (-INF, INF, 1.0, 0.5, torch.tanh(torch.tensor(0.5)).item(), 0.5),
        (INF, -INF, 1.0, 0.5, 0.0, 1.5),
        (INF, INF, INF, 0.5, 1.0, INF),
        (INF, INF, -INF, 0.5, torch.tanh(torch.tensor(-0.5)).item(), -0.5),
        (0.0, INF, 0.0, INF, 1.0, INF),
        (0.0, INF, 0.0, -INF, -1.0, -INF),
    ]
    z_i, z_o, z_c, cell, want_h, want_cell = (list(column) for column in zip(*z, strict=True))
    new_h, new_cell = through_function(*chosen(z_i, z_o, z_c, cell, dtype=dtype, device=device))
    rtol = max(2 * EPSILON[dtype], 1e-6)
    torch.testing.assert_close(new_h.flatten().tolist(), want_h, rtol=rtol, atol=0)
    torch.testing.assert_close(new_cell.flatten().tolist(), want_cell, rtol=rtol, atol=0)


@every_dtype
def test_infinity_times_zero_is_nan_as_in_the_reference(device, dtype) -> None:
    new_h, new_cell = through_function(*chosen(-INF, 0.0, INF, 0.0, dtype=dtype, device=device))
    assert new_cell.isnan().all() and new_h.isnan().all()


@every_dtype
def test_infinite_cell_has_finite_gradients(device, dtype) -> None:
    inputs = chosen([0.5, 0.5], [0.5, 0.5], [0.5, -0.5], [INF, -INF], dtype=dtype, device=device)
    new_h, _ = through_function(*inputs)
    found = torch.autograd.grad(new_h.sum(), [inputs.bias, inputs.old_cell])
    assert all(g.isfinite().all() for g in found)
    assert not found[1].any(), "tanh is flat at infinity"


@every_dtype
@pytest.mark.parametrize("gate", [0, 1, 2], ids=["z_i", "z_o", "z_c"])
def test_nan_in_one_gate_reaches_what_depends_on_it_only(device, dtype, gate) -> None:
    inputs = make_inputs(3, 2, 5, dtype=dtype, device=device)
    inputs.bias[gate * 5 + 2] = NAN
    new_h, new_cell = through_function(*inputs)
    expected = torch.zeros(3, 5, dtype=torch.bool, device=device)
    expected[:, 2] = True
    assert torch.equal(new_h.isnan(), expected)
    assert torch.equal(new_cell.isnan(), expected & (gate != 1))


@every_dtype
@pytest.mark.parametrize("name", ["input", "old_h"])
def test_nan_in_one_row_stays_in_its_row(device, dtype, name) -> None:
    inputs = make_inputs(3, 2, 5, dtype=dtype, device=device)
    getattr(inputs, name)[1, 0] = NAN
    for result in through_function(*inputs):
        assert result[1].isnan().all()
        assert result[[0, 2]].isfinite().all()


@every_dtype
def test_nan_in_the_cell_stays_in_its_place(device, dtype) -> None:
    inputs = make_inputs(3, 2, 5, dtype=dtype, device=device)
    inputs.old_cell[1, 3] = NAN
    for result in through_function(*inputs):
        assert result.isnan().sum() == 1 and result[1, 3].isnan()


@every_dtype
def test_nan_reaches_the_gradients(device, dtype) -> None:
    inputs = make_inputs(3, 2, 5, dtype=dtype, device=device)
    inputs.bias[2] = NAN
    for tensor in inputs:
        tensor.requires_grad_()
    new_h, new_cell = through_function(*inputs)
    d_bias, d_cell = torch.autograd.grad(
        new_h.sum() + new_cell.sum(), [inputs.bias, inputs.old_cell]
    )
    assert d_bias[[2, 12]].isnan().all(), "dz_i and dz_c of the poisoned column"
    assert d_cell[:, 2].isnan().all() and d_cell[:, [0, 1, 3, 4]].isfinite().all()


@every_entry
@pytest.mark.parametrize("create_graph", [False, True], ids=["", "create_graph"])
def test_nan_in_the_output_gate_stays_out_of_gradients_of_the_cell(
    device, entry, create_graph
) -> None:
    inputs = make_inputs(3, 2, 5, dtype=torch.float64, device=device, requires_grad=True)
    with torch.no_grad():
        inputs.bias[5 + 2] = NAN
    exact = in_float64(inputs)
    want = gradients(
        lltm_conda.reference(*exact)[1:], exact, [torch.ones(3, 5, dtype=torch.float64)]
    )
    new_cell = entry(*inputs)[1]
    actual = torch.autograd.grad(new_cell.sum(), inputs, create_graph=create_graph)
    assert all(gradient.isfinite().all() for gradient in want)
    assert_agree([gradient.detach() for gradient in actual], want, 1e-12, NAMES)


#: What a gate or a cell state may be. Torch's own sigmoid of float32 is 0 below -88, and ours not.
SPECIAL = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 40.0, -40.0, -60.0, 1e4, 1e-5)


def draw_special(generator: random.Random, share: float, *shape: int) -> torch.Tensor:
    def draw() -> float:
        special = generator.random() < share
        return generator.choice(SPECIAL) if special else generator.gauss(0, 3)

    count = math.prod(shape)
    return torch.tensor([draw() for _ in range(count)]).reshape(shape)


def kinds(tensor: torch.Tensor) -> torch.Tensor:
    """0 for a finite number, 1 for NaN, 2 and 3 for the infinities."""
    tensor = tensor.detach().cpu().double()
    return tensor.isnan() + 2 * (tensor == INF) + 3 * (tensor == -INF)


@every_dtype
@pytest.mark.parametrize("seed", range(20))
def test_nan_and_infinities_propagate_as_in_the_reference(device, dtype, seed) -> None:
    # The reference computes 16 bits in float32, as the kernels do.
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    generator = random.Random(seed)
    batch, state = generator.choice([1, 2, 3]), generator.choice([1, 3, 8, 17, 40])
    z_i, z_o, z_c, cell = (draw_special(generator, 0.3, state) for _ in range(4))
    inputs = chosen(z_i, z_o, z_c, cell, dtype=dtype, device=device)
    rows = [tensor.detach().expand(batch, -1).contiguous() for tensor in inputs[::2]]
    inputs = inputs._replace(input=rows[0], old_cell=rows[2], old_h=torch.zeros_like(rows[2]))
    inputs = Inputs(*(tensor.detach().requires_grad_() for tensor in inputs))
    exact = [tensor.detach().to(wide).requires_grad_() for tensor in inputs]
    outputs = through_function(*inputs)
    wanted = lltm_conda.reference(*exact)
    for actual, want in zip(outputs, wanted, strict=True):
        assert torch.equal(kinds(actual), kinds(want.to(dtype)))

    missing = generator.choice([None, 0, 1])
    incoming = [draw_special(generator, 0.1, batch, state).to(device, dtype) for _ in outputs]
    used = [k for k in (0, 1) if k != missing]
    actual = torch.autograd.grad(
        [outputs[k] for k in used], (inputs.bias, inputs.old_cell), [incoming[k] for k in used]
    )
    want = torch.autograd.grad(
        [wanted[k] for k in used], (exact[2], exact[4]), [incoming[k].to(wide) for k in used]
    )
    # The derivative of torch's own elu at NaN is 1 or NaN, by the place of the element.
    known = torch.cat(
        [torch.ones(2 * state, dtype=torch.bool), ~inputs.bias[-state:].isnan().cpu()]
    )
    assert torch.equal(kinds(actual[0])[known], kinds(want[0].to(dtype))[known])
    assert torch.equal(kinds(actual[1]), kinds(want[1].to(dtype)))


@every_dtype
def test_nan_in_an_incoming_gradient_is_not_swallowed(device, dtype) -> None:
    inputs = make_inputs(3, 2, 5, dtype=dtype, device=device, requires_grad=True)
    new_h, _ = through_function(*inputs)
    incoming = torch.zeros_like(new_h)
    incoming[1, 3] = NAN
    (d_cell,) = torch.autograd.grad(new_h, inputs.old_cell, incoming)
    assert d_cell.isnan().sum() == 1 and d_cell[1, 3].isnan()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_sixteen_bit_results_are_rounded_once_from_float32(device, dtype) -> None:
    # With exact pre-activations, float32 arithmetic leaves one rounding: half a unit.
    z = torch.linspace(-4, 4, 301).to(dtype)
    inputs = chosen(z, z.flip(0), z.roll(70), 0.25, dtype=dtype, device=device)
    want = lltm_conda.reference(*in_float64(inputs))
    for actual, exact in zip(through_function(*inputs), want, strict=True):
        torch.testing.assert_close(
            actual.cpu().double(), exact, rtol=0.51 * EPSILON[dtype], atol=1e-6
        )
