"""Random problems, their float64 answers, and the check that every contender passes.

The formulas are written here once more, apart from the package under test: the judge must not be
the accused. A test holds them against ``lltm_conda.reference``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .schema import Size

State = tuple[Tensor, ...]
"""(h, c), or (h,) for a GRU; each (B, S)."""

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

# One step's tolerance on ||out - ref|| / ||ref||, over every output and gradient. float32 with tf32
# products is coarser; which of the two ran is in the report's settings.
TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 5e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 3e-2,
}
TF32_TOLERANCE = 3e-3


class WrongResult(RuntimeError):
    """A contender's output or gradient is not what float64 says; its times are worth nothing."""


@dataclass(frozen=True)
class Inputs:
    """One set of inputs and of random cotangents for the outputs.

    `x` is (B, I), or (T, B, I) for a sequence. `grad_output` is the cotangent of what the contender
    returns first: h (B, S), or the outputs (T, B, S). `grad_state` are the others: (c,) for a step,
    the whole final state for a sequence.
    """

    x: Tensor
    state: State
    grad_output: Tensor
    grad_state: State

    def detached(self, requires_grad: bool) -> tuple[Tensor, State]:
        """Fresh leaves on the same memory."""
        x = self.x.detach().requires_grad_(requires_grad)
        return x, tuple(s.detach().requires_grad_(requires_grad) for s in self.state)

    def shaped(self, stacked: bool) -> Inputs:
        """The same with states (1, B, S) if `stacked`, else (B, S)."""
        batch, width = self.state[0].shape[-2:]
        shape = (1, batch, width) if stacked else (batch, width)

        def view(states: State) -> State:
            return tuple(s.view(shape) for s in states)

        return replace(self, state=view(self.state), grad_state=view(self.grad_state))


def generator(device: str, seed: int) -> torch.Generator:
    """A seeded generator of the device."""
    return torch.Generator(device).manual_seed(seed)


def make_inputs(
    size: Size, dtype: torch.dtype, device: str, seed: int, *, states: int = 2
) -> Inputs:
    """Draw one set; normal values, never zeros."""
    rng = generator(device, seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.float32).to(dtype)

    if size.steps == 1:
        x, grad = draw(size.batch, size.inputs), draw(size.batch, size.state)
    else:
        x = draw(size.steps, size.batch, size.inputs)
        grad = draw(size.steps, size.batch, size.state)
    state = tuple(draw(size.batch, size.state) for _ in range(states))
    extra = states - 1 if size.steps == 1 else states
    return Inputs(x, state, grad, tuple(draw(size.batch, size.state) for _ in range(extra)))


def randomise(module: nn.Module, state_size: int, seed: int) -> None:
    """Draw every parameter uniformly from +-1/sqrt(S), as the cell and nn.LSTM start."""
    bound = 1.0 / math.sqrt(state_size)
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            rng = generator(parameter.device.type, seed + index)
            value = torch.rand(parameter.shape, generator=rng, device=parameter.device)
            parameter.copy_((2 * value - 1) * bound)


# -- the formulas ----------------------------------------------------------------------------------


Linear = Callable[[Tensor, Tensor, Tensor], Tensor]


class _Tf32Linear(torch.autograd.Function):
    """`F.linear` with the operands of every product, also in backward, rounded to tf32.

    What a GPU may do where torch's flag allows tf32, and does not do for every shape: a row by a
    matrix it multiplies exactly.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = rounded_to_tf32(x)
        # The weight as it is: a rounded copy for every step would be more than a GPU holds.
        ctx.save_for_backward(x, weight)
        return F.linear(x, rounded_to_tf32(weight), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rounded = rounded_to_tf32(grad)
        return rounded @ rounded_to_tf32(weight), rounded.t() @ x, grad.sum(0)


def rounded_to_tf32(tensor: Tensor) -> Tensor:
    """float32 with ten bits of mantissa, to nearest, as tensor cores are given it."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def tf32_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`F.linear` in float32 as coarse as torch's flag for tf32 allows."""
    return _Tf32Linear.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


def lltm_step(p: Mapping[str, Tensor], x: Tensor, state: State, linear: Linear = F.linear) -> State:
    """(h', c') of one LLTM step."""
    h, c = state
    z = linear(torch.cat((h, x), dim=1), p["weights"], p["bias"].reshape(-1))
    z_i, z_o, z_c = z.chunk(3, dim=1)
    new_c = c + F.elu(z_c) * torch.sigmoid(z_i)
    return torch.tanh(new_c) * torch.sigmoid(z_o), new_c


def lstm_step(p: Mapping[str, Tensor], x: Tensor, state: State, linear: Linear = F.linear) -> State:
    """(h', c') of one LSTM step."""
    h, c = state
    z = linear(x, p["weight_ih"], p["bias_ih"]) + linear(h, p["weight_hh"], p["bias_hh"])
    i, f, g, o = z.chunk(4, dim=1)
    new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(new_c), new_c


def gru_step(p: Mapping[str, Tensor], x: Tensor, state: State, linear: Linear = F.linear) -> State:
    """(h',) of one GRU step."""
    (h,) = state
    x_r, x_z, x_n = linear(x, p["weight_ih"], p["bias_ih"]).chunk(3, dim=1)
    h_r, h_z, h_n = linear(h, p["weight_hh"], p["bias_hh"]).chunk(3, dim=1)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return ((1 - z) * n + z * h,)


STEPS: dict[str, Callable[[Mapping[str, Tensor], Tensor, State, Linear], State]] = {
    "lltm": lltm_step,
    "lstm": lstm_step,
    "gru": gru_step,
}
STATES = {"lltm": 2, "lstm": 2, "gru": 1}


def short_name(name: str) -> str:
    """`weights` of `cell.weights` or `weights_l0`: the name the formulas know."""
    return name.rsplit(".", 1)[-1].removesuffix("_l0")


class _Instead(torch.autograd.Function):
    """The second value in the place of the first, with the derivative of the first."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, other: Tensor) -> Tensor:
        return other.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def run_formula(
    kind: str,
    p: Mapping[str, Tensor],
    x: Tensor,
    state: State,
    linear: Linear = F.linear,
    followed: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """What a contender of this kind returns: output first, then the rest of the final state.

    With `followed`, outputs (T, B, S), every step but the first begins with what that has for the
    step before in the place of h. Over a sequence c is added up in float32 at least.
    """
    step = STEPS[kind]
    if x.dim() == 2:
        return step(p, x, state, linear)
    wide = torch.promote_types(x.dtype, torch.float32)
    state = (state[0], *(c.to(wide) for c in state[1:]))
    outputs = []
    for t, x_t in enumerate(x.unbind(0)):
        if followed is not None and t > 0:
            state = (_Instead.apply(state[0], followed[t - 1]), *state[1:])  # type: ignore[no-untyped-call]
        h, *cells = step(p, x_t, state, linear)
        state = (h.to(x.dtype), *cells)
        outputs.append(state[0])
    return (torch.stack(outputs), *(s.to(x.dtype) for s in state))


# -- the check -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A contender at one size: what is called, and the module that owns the parameters.

    `call(x, state)` returns the output, then the rest of the final state, as
    :func:`run_formula` does.
    """

    kind: str
    module: nn.Module
    call: Callable[[Tensor, State], tuple[Tensor, ...]]
    capturable: bool = True
    """False where it cannot run inside a CUDA graph capture."""
    new_step: Callable[[], None] = lambda: None
    """Called before every step; reduce-overhead needs it to reuse its graphs' outputs."""
    stacked: bool = False
    """Whether states are (1, B, S), as a module of one layer takes and returns them."""
    slack: float = 1.0
    """How many times the tolerance it may be off; above 1 only for a known flaw of a baseline."""


def tolerance(cell: Cell, size: Size, dtype: torch.dtype, device: str) -> float:
    """The largest relative error allowed a step, or a short sequence."""
    allowed = TF32_TOLERANCE if tf32_allowed(size, dtype, device) else TOLERANCE[dtype]
    return allowed * cell.slack * (2.0 if size.steps > 1 else 1.0)


def tf32_allowed(size: Size, dtype: torch.dtype, device: str) -> bool:
    """Whether torch's flags let a contender round products to tf32."""
    if dtype is not torch.float32 or device != "cuda":
        return False
    # cuDNN's recurrences follow their own flag, which is on by default.
    sequence = size.steps > 1 and torch.backends.cudnn.allow_tf32
    return torch.backends.cuda.matmul.allow_tf32 or sequence


def relative_error(value: Tensor, reference: Tensor) -> float:
    """||value - reference|| / ||reference|| in float64; not a number counts as infinite.

    Of a sequence (T, B, ...), that of the worst step.
    """
    # The steps of a sequence are of very different sizes: one by one, or only the largest count.
    dims = (1, 2) if reference.dim() == 3 else None
    difference = torch.linalg.vector_norm(value.detach().double() - reference, dim=dims)
    scale = torch.linalg.vector_norm(reference, dim=dims)
    error = torch.where(scale > 0, difference / scale, difference).max().item()
    return error if math.isfinite(error) else math.inf


def poison(size: Size, dtype: torch.dtype, device: str) -> None:
    """Leave NaN in memory that the allocator hands out next, so that an unwritten output shows."""
    rows = size.batch * size.steps
    blocks = [
        torch.full((rows, width * size.state), math.nan, dtype=dtype, device=device)
        for width in (1, 1, 1, 3, 3)
    ]
    del blocks


def compare(
    values: Mapping[str, Tensor], reference: Mapping[str, Tensor], allowed: Mapping[str, float]
) -> float:
    """The largest error; raises :class:`WrongResult` naming the first value that is off."""
    if values.keys() != reference.keys():
        raise WrongResult(f"got {sorted(values)}, need {sorted(reference)}")
    worst = 0.0
    for name, expected in reference.items():
        error = relative_error(values[name].reshape(expected.shape), expected)
        if not error <= allowed[name]:
            raise WrongResult(
                f"{name} differs from float64 by {error:.2e} (relative), "
                f"allowed is {allowed[name]:.2e}"
            )
        worst = max(worst, error)
    return worst


def expected_outputs(cell: Cell, inputs: Inputs, followed: Tensor) -> tuple[Tensor, ...]:
    """Forward alone in float64; of a sequence, by steps from the outputs `followed`."""
    parameters = {short_name(n): p.detach().double() for n, p in cell.module.named_parameters()}
    inputs = inputs.shaped(stacked=False)
    state = tuple(s.double() for s in inputs.state)
    with torch.no_grad():
        return run_formula(
            cell.kind, parameters, inputs.x.double(), state, followed=followed.double()
        )


def differentiate(
    call: Callable[[Tensor, State], tuple[Tensor, ...]],
    parameters: Mapping[str, Tensor],
    x: Tensor,
    state: State,
    cotangents: State,
) -> dict[str, Tensor]:
    """Outputs, and the gradients of the parameters and of what else requires one, by name."""
    outputs = call(x, state)
    values = {f"output{i}": o.detach().clone() for i, o in enumerate(outputs)}
    leaves = {"d_input": x, **{f"d_state{i}": s for i, s in enumerate(state)}}
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    leaves |= {f"d_{name}": parameter for name, parameter in parameters.items()}
    gradients = torch.autograd.grad(outputs, list(leaves.values()), cotangents)
    return values | dict(zip(leaves, (g.clone() for g in gradients), strict=True))


def check(cell: Cell, size: Size, inputs: Inputs, *, input_gradients: bool = True) -> float:
    """Run forward and backward once and compare all of it with float64.

    With `input_gradients` false only the parameters want gradients, as in the tutorial's protocol.
    Returns the largest relative error.

    A sequence is checked step by step: in float64 from the h that the contender itself returned for
    the step before, its derivative with the rest. Left alone, a cell that never forgets multiplies
    rounding errors until, after some hundred steps, two right answers have nothing in common. Where
    errors that do add up (of the gradients of all steps) are more than a few steps' worth, twice
    those of the formula in the contender's dtype are allowed, in the same manner; with products
    rounded to tf32 where torch's flags allow that.

    Raises:
        WrongResult: an output or a gradient is off, is not a number, or was not written.
    """
    dtype, device = inputs.x.dtype, inputs.x.device.type
    named = {short_name(n): p for n, p in cell.module.named_parameters()}
    given = inputs.shaped(cell.stacked)
    x, state = given.detached(requires_grad=input_gradients)
    poison(size, dtype, device)
    cell.new_step()
    values = differentiate(cell.call, named, x, state, (given.grad_output, *given.grad_state))

    plain = inputs.shaped(stacked=False)
    cotangents = (plain.grad_output, *plain.grad_state)

    def formula(width: torch.dtype, linear: Linear = F.linear) -> dict[str, Tensor]:
        def leaf(tensor: Tensor, wanted: bool) -> Tensor:
            return tensor.detach().to(width, copy=True).requires_grad_(wanted)

        parts = []
        for rows in _parts(size):
            parameters = {n: leaf(p, True) for n, p in named.items()}
            followed = _rows(values["output0"], rows).to(width) if size.steps > 1 else None
            part = differentiate(
                lambda x, state, p=parameters, f=followed: run_formula(  # type: ignore[misc]
                    cell.kind, p, x, state, linear, f
                ),
                parameters,
                leaf(_rows(plain.x, rows), input_gradients),
                tuple(leaf(s[rows], input_gradients) for s in plain.state),
                tuple(_rows(g, rows).to(width) for g in cotangents),
            )
            parts.append(part)
        return _joined(parts, of_parameters={f"d_{name}" for name in named})

    reference = formula(torch.float64)
    allowed = dict.fromkeys(reference, tolerance(cell, size, dtype, device))
    try:
        return compare(values, reference, allowed)
    except WrongResult:
        if size.steps == 1 or dtype is torch.float64:
            raise
    linear = tf32_linear if tf32_allowed(size, dtype, device) else F.linear
    for name, value in formula(dtype, linear).items():
        far = min(2 * relative_error(value, reference[name]), FARTHEST)
        allowed[name] = max(allowed[name], far)
    return compare(values, reference, allowed)


FARTHEST = 0.25
"""The largest relative error that anything allows: zeros would be off by 1."""
LARGEST_PART = 2**28
"""Elements of a sequence of states that the formula computes at once: autograd keeps some ten."""


def _parts(size: Size) -> list[slice]:
    """The batch in parts: its rows have only the parameters' gradients in common."""
    rows = max(1, LARGEST_PART // (size.steps * size.state))
    return [slice(first, first + rows) for first in range(0, size.batch, rows)]


def _rows(tensor: Tensor, rows: slice) -> Tensor:
    """Of (B, ...), or of (T, B, ...)."""
    return tensor[:, rows] if tensor.dim() == 3 else tensor[rows]


def _joined(parts: list[dict[str, Tensor]], of_parameters: set[str]) -> dict[str, Tensor]:
    """What the whole batch would have given."""
    if len(parts) == 1:
        return parts[0]
    return {
        name: torch.stack([part[name] for part in parts]).sum(0)
        if name in of_parameters
        else torch.cat([part[name] for part in parts], dim=parts[0][name].dim() - 2)
        for name in parts[0]
    }
