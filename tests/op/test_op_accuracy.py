"""Element by element: how far the activations are from the truth, and that 16 bits convert exactly.

A norm over a tensor hides a bad element behind good ones; these bounds do not. They are in units
in the last place (ulp) of the result: sigmoid, elu and tanh each stay within ``ULPS``, and products
of two within twice that.
"""

from __future__ import annotations

import pytest
import torch
from op_cases import saved_for_backward

# For float64 the truth is torch's own, itself not exact: against extended precision these are 2.2.
ULPS = {
    ("cpu", torch.float32): 2,
    ("cpu", torch.float64): 3,
    ("cuda", torch.float32): 4,
    ("cuda", torch.float64): 4,
}
EXACT = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
SIXTEEN = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"]
)
INF = float("inf")
COLUMNS = 61  # no multiple of any register: the last columns of a row go another way


def as_rows(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    count = values.numel() // COLUMNS * COLUMNS
    return values.to(dtype)[:count].reshape(-1, COLUMNS)


def run(dtype, device, *, z_i=0.0, z_o=0.0, z_c=0.0, cell=0.0):
    """Forward with exact pre-activations: one argument may be a (B, S) tensor, the rest numbers.

    The tensor is the input, and the weights copy it into its gate (or it is the old cell), so that
    no GEMM rounds it.
    """
    gates = [z_i, z_o, z_c]
    values = next(v for v in (*gates, cell) if isinstance(v, torch.Tensor))
    batch, state = values.shape
    weights = torch.zeros(3, state, 2 * state, dtype=dtype, device=device)
    bias = torch.zeros(3, state, dtype=dtype, device=device)
    input = torch.zeros(batch, state, dtype=dtype, device=device)
    for gate, z in enumerate(gates):
        if isinstance(z, torch.Tensor):
            weights[gate, :, state:] = torch.eye(state, dtype=dtype, device=device)
            input.copy_(z)
        else:
            bias[gate] = z
    old_cell = torch.empty_like(input)
    old_cell.copy_(cell) if isinstance(cell, torch.Tensor) else old_cell.fill_(cell)
    inputs = (
        input,
        weights.reshape(3 * state, -1),
        bias.reshape(-1),
        torch.zeros_like(input),
        old_cell,
    )
    results = torch.ops.lltm.forward(*inputs)
    for gate, z in enumerate(gates):
        if isinstance(z, torch.Tensor):
            assert torch.equal(results[2][:, gate].cpu(), z), "the GEMM changed the pre-activations"
    return inputs, results


def ulps(actual: torch.Tensor, want: torch.Tensor) -> float:
    """The largest error in ulp of ``got``'s dtype; ``want`` is float64, itself within 1 ulp."""
    actual = actual.detach().cpu()
    rounded = want.to(actual.dtype)
    spacing = torch.nextafter(rounded.abs(), torch.full_like(rounded, INF)) - rounded.abs()
    return ((actual.double() - want).abs() / spacing.double()).max().item()


def logarithmic(smallest: float, largest: float) -> torch.Tensor:
    return torch.logspace(smallest, largest, 30_000, dtype=torch.float64)


LOWEST = {torch.float32: -87.0, torch.float64: -700.0}  # below, sigmoid is subnormal


@EXACT
def test_sigmoid_in_ulps(device, dtype) -> None:
    z = as_rows(torch.linspace(LOWEST[dtype], 40.0, 60_000, dtype=torch.float64), dtype)
    _, (new_h, _, _) = run(dtype, device, z_o=z, cell=64.0)  # tanh(64) is one
    assert ulps(new_h, torch.sigmoid(z.double())) <= ULPS[device.type, dtype]


@EXACT
def test_elu_in_ulps(device, dtype) -> None:
    z = as_rows(
        torch.cat([torch.linspace(-120.0, 0.0, 60_000).double(), -logarithmic(-30, 0)]), dtype
    )
    _, (_, new_cell, _) = run(dtype, device, z_i=INF, z_c=z)  # sigmoid(inf) is one
    assert ulps(new_cell, torch.expm1(z.double())) <= ULPS[device.type, dtype]


@EXACT
def test_elu_of_positive_numbers_is_the_identity(device, dtype) -> None:
    z = as_rows(logarithmic(-30, 30), dtype)
    _, (_, new_cell, _) = run(dtype, device, z_i=INF, z_c=z)
    assert torch.equal(new_cell.cpu(), z)


@EXACT
def test_tanh_in_ulps(device, dtype) -> None:
    positive = torch.cat([logarithmic(-30, 1.5), torch.linspace(0.0, 25.0, 60_000).double()])
    x = as_rows(torch.cat([positive, -positive]), dtype)
    _, (new_h, _, _) = run(dtype, device, z_o=INF, cell=x)
    assert ulps(new_h, torch.tanh(x.double())) <= ULPS[device.type, dtype]


def test_tanh_never_leaves_its_range(device) -> None:
    x = as_rows(torch.linspace(-40.0, 40.0, 60_000, dtype=torch.float64), torch.float32)
    _, (new_h, _, _) = run(torch.float32, device, z_o=INF, cell=x)
    assert new_h.abs().max() <= 1


@EXACT
@pytest.mark.parametrize("gate", ["i", "o"])
def test_slope_of_the_sigmoid_in_ulps(device, dtype, gate) -> None:
    # Also far out, where 1 - sigmoid(z) has no digits left.
    reach = -LOWEST[dtype] / 2
    z = as_rows(torch.linspace(-reach, reach, 60_000, dtype=torch.float64), dtype)
    if gate == "i":
        inputs, results = run(dtype, device, z_i=z, z_c=1.0)
        incoming = (None, torch.ones_like(z).to(device), None)
    else:
        inputs, results = run(dtype, device, z_o=z, cell=64.0)
        incoming = (torch.ones_like(z).to(device), None, None)
    # The gradient of the input, through the copying weights, is dz.
    saved = saved_for_backward(inputs, results)
    dz = torch.ops.lltm.backward(*incoming, *saved, 1)[0]
    exact = z.double()
    assert ulps(dz, torch.sigmoid(exact) * torch.sigmoid(-exact)) <= 2 * ULPS[device.type, dtype]


@EXACT
def test_slope_of_elu_in_ulps(device, dtype) -> None:
    # Far out, elu(z) + 1 has no digits left.
    near = torch.linspace(-30.0, 5.0, 60_000, dtype=torch.float64)
    z = as_rows(torch.cat([near, torch.linspace(LOWEST[dtype], -30.0, 60_000).double()]), dtype)
    inputs, results = run(dtype, device, z_i=INF, z_c=z)
    incoming = (None, torch.ones_like(z).to(device), None)
    dz = torch.ops.lltm.backward(*incoming, *saved_for_backward(inputs, results), 1)[0]
    assert ulps(dz, torch.exp(z.double().clamp(max=0.0))) <= 2 * ULPS[device.type, dtype]


@EXACT
def test_slope_of_elu_may_be_zero_where_it_is_subnormal(device, dtype) -> None:
    z = as_rows(torch.linspace(-800.0, LOWEST[dtype], 6_000, dtype=torch.float64), dtype)
    inputs, results = run(dtype, device, z_i=INF, z_c=z)
    incoming = (None, torch.ones_like(z).to(device), None)
    dz = torch.ops.lltm.backward(*incoming, *saved_for_backward(inputs, results), 1)[0]
    error = (dz.cpu().double() - torch.exp(z.double())).abs()
    assert error.max() <= 2 * torch.finfo(dtype).tiny


@EXACT
def test_slope_of_elu_is_accurate_in_second_derivatives(device, dtype) -> None:
    z = as_rows(torch.linspace(-60.0, 5.0, 6_000, dtype=torch.float64), dtype)
    inputs, _ = run(dtype, device, z_i=INF, z_c=z)
    inputs[0].requires_grad_()
    new_cell = torch.ops.lltm.forward(*inputs)[1]
    (dz,) = torch.autograd.grad(new_cell.sum(), inputs[0], create_graph=True)
    want = torch.exp(z.double().clamp(max=0.0))
    torch.testing.assert_close(dz.detach().cpu().double(), want, rtol=1e-6, atol=0)
    (d2z,) = torch.autograd.grad(dz.sum(), inputs[0])
    want = torch.where(z.double() < 0, want, 0.0)
    torch.testing.assert_close(d2z.cpu().double(), want, rtol=1e-6, atol=0)


def all_patterns(dtype: torch.dtype) -> torch.Tensor:
    """Every 16-bit number there is, NaN and subnormals included."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    return bits.view(dtype).reshape(256, 256)


def test_patterns_hold_every_kind_of_number() -> None:
    patterns = all_patterns(torch.float16)
    assert patterns.unique().numel() >= 2 * 31 * 1024 and patterns.isnan().any()


@SIXTEEN
def test_every_sixteen_bit_number_is_read_and_written_unchanged(device, dtype) -> None:
    patterns = all_patterns(dtype)
    _, (_, new_cell, _) = run(dtype, device, z_i=-INF, z_c=0.0, cell=patterns)  # adds zero
    actual = new_cell.cpu()
    nan = patterns.isnan()
    assert torch.equal(actual.isnan(), nan)
    assert torch.equal(actual[~nan], patterns[~nan])


@SIXTEEN
@pytest.mark.parametrize("addend", [1.0, 3.7, 1e-6, 6e-8, 300.0, 65504.0, 0.3333])
def test_results_are_rounded_to_nearest_even(device, dtype, addend) -> None:
    patterns = all_patterns(dtype)
    addend = torch.tensor(addend, dtype=dtype)
    _, (_, new_cell, _) = run(dtype, device, z_i=INF, z_c=addend.item(), cell=patterns)
    want = (patterns.float() + addend.float()).to(dtype)  # torch's own conversion
    actual = new_cell.cpu()
    nan = want.isnan()
    assert torch.equal(actual.isnan(), nan)
    assert torch.equal(actual[~nan], want[~nan])


@SIXTEEN
def test_incoming_gradients_are_read_and_written_unchanged(device, dtype) -> None:
    patterns = all_patterns(dtype)
    inputs, results = run(dtype, device, cell=torch.zeros_like(patterns))
    saved = saved_for_backward(inputs, results)
    d_cell = torch.ops.lltm.backward(None, patterns.to(device), None, *saved, 16)[4].cpu()
    nan = patterns.isnan()
    assert torch.equal(d_cell.isnan(), nan)
    assert torch.equal(d_cell[~nan], patterns[~nan])


@pytest.mark.parametrize("state", range(1, 70))
def test_every_remainder_of_a_register(device, state) -> None:
    """Whatever the width of a register, some of these rows end in the middle of one."""
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        values = torch.linspace(-3, 3, 3 * state).reshape(3, state).to(dtype)
        _, (new_h, new_cell, _) = run(dtype, device, z_c=values, cell=0.5)
        exact = values.double()
        want = 0.5 + 0.5 * torch.where(exact > 0, exact, torch.expm1(exact))
        bound = torch.finfo(dtype).eps * 4
        torch.testing.assert_close(new_cell.cpu().double(), want, rtol=bound, atol=bound)
        torch.testing.assert_close(
            new_h.cpu().double(), 0.5 * torch.tanh(want), rtol=bound, atol=bound
        )
