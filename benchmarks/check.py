"""The formulas of the cells, written independently of the code they check, and the comparison of
every output and gradient of a contender with them in float64; `results/README.md` says how."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .contender import Cell, Inputs, State

TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 5e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 3e-2,
}
"""For one step, on ||out - ref|| / ||ref|| of every output and gradient."""
TF32_TOLERANCE = 3e-3
"""The same for float32 with tf32 products; the report's settings say whether they were allowed."""
FARTHEST = 0.25
"""The largest relative error that is ever allowed. (An output of zeros has 1.)"""
LARGEST_PART = 2**28
"""The most elements of a sequence of states in a call of the formula; autograd keeps about ten."""


class WrongResult(RuntimeError):
    """A contender's output or gradient differs from float64; its times mean nothing."""


Linear = Callable[[Tensor, Tensor, Tensor], Tensor]


class _Tf32Linear(torch.autograd.Function):
    """`F.linear` in float32 with the operands of every product, also in backward, rounded to tf32.

    A GPU may round like this if torch's flag allows tf32, but not for every shape: it multiplies a
    single row by a matrix exactly.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = rounded_to_tf32(x)
        # Save the weight itself: a rounded copy for every step would not fit into a GPU's memory.
        ctx.save_for_backward(x, weight)
        return F.linear(x, rounded_to_tf32(weight), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rounded = rounded_to_tf32(grad)
        return rounded @ rounded_to_tf32(weight), rounded.t() @ x, grad.sum(0)


def rounded_to_tf32(tensor: Tensor) -> Tensor:
    """float32 rounded to the nearest value with a mantissa of ten bits, as for tensor cores."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


tf32_linear: Linear = _Tf32Linear.apply


def lltm_step(p: Mapping[str, Tensor], x: Tensor, state: State, linear: Linear = F.linear) -> State:
    h, c = state
    z = linear(torch.cat((h, x), dim=1), p["weights"], p["bias"].reshape(-1))
    z_i, z_o, z_c = z.chunk(3, dim=1)
    new_c = c + F.elu(z_c) * torch.sigmoid(z_i)
    return torch.tanh(new_c) * torch.sigmoid(z_o), new_c


def lstm_step(p: Mapping[str, Tensor], x: Tensor, state: State, linear: Linear = F.linear) -> State:
    h, c = state
    z = linear(x, p["weight_ih"], p["bias_ih"]) + linear(h, p["weight_hh"], p["bias_hh"])
    i, f, g, o = z.chunk(4, dim=1)
    new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(new_c), new_c


STEPS = {"lltm": lltm_step, "lstm": lstm_step}


def run_formula(
    kind: str,
    p: Mapping[str, Tensor],
    x: Tensor,
    state: State,
    linear: Linear = F.linear,
    followed: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The results of a contender of this kind: the output, then the rest of the final state.

    If `followed` (T, B, S) is given, every step but the first takes its previous h from there. A
    sequence adds up c in float32 or float64.
    """
    step = STEPS[kind]
    if x.dim() == 2:
        return step(p, x, state, linear)
    h, c = state[0][0], state[1][0].to(torch.promote_types(x.dtype, torch.float32))
    outputs: list[Tensor] = []
    for t, x_t in enumerate(x):
        if followed is not None and t > 0:
            # The value of `followed`, with the derivative of the formula's h: the difference is 0.
            h = followed[t - 1] + (h - h.detach())
        h, c = step(p, x_t, (h, c), linear)
        h = h.to(x.dtype)
        outputs.append(h)
    return torch.stack(outputs), h[None], c[None].to(x.dtype)


def parameters(cell: Cell) -> dict[str, Tensor]:
    """By the names in the formulas: `weights` for `cell.weights` and for `weights_l0`."""
    named = cell.module.named_parameters()
    return {name.rsplit(".", 1)[-1].removesuffix("_l0"): value for name, value in named}


def tolerance(cell: Cell, x: Tensor) -> float:
    allowed = TF32_TOLERANCE if tf32_allowed(x) else TOLERANCE[x.dtype]
    return allowed * cell.slack * (2.0 if x.dim() == 3 else 1.0)


def tf32_allowed(x: Tensor) -> bool:
    if x.dtype is not torch.float32 or not x.is_cuda:
        return False
    # cuDNN's recurrences follow their own flag, which is on by default.
    sequence = x.dim() == 3 and torch.backends.cudnn.allow_tf32
    return torch.backends.cuda.matmul.allow_tf32 or sequence


def relative_error(value: Tensor, reference: Tensor) -> float:
    """||value - reference|| / ||reference|| in float64; NaN counts as infinite.

    For a sequence (T, B, ...) it is the error of the worst step.
    """
    # The values of steps differ by orders of magnitude: one norm would show only the largest step.
    dims = (1, 2) if reference.dim() == 3 else None
    difference = torch.linalg.vector_norm(value.detach().double() - reference, dim=dims)
    scale = torch.linalg.vector_norm(reference, dim=dims)
    error = torch.where(scale > 0, difference / scale, difference).max().item()
    return error if math.isfinite(error) else math.inf


def poison(output: Tensor) -> None:
    """Leave NaN in memory that the allocator reuses next, so that an unwritten output shows."""
    _ = [output.new_full((n * output.numel(),), math.nan) for n in (1, 1, 1, 3, 3)]


def differentiate(
    call: Callable[[Tensor, State], tuple[Tensor, ...]],
    parameters: Mapping[str, Tensor],
    x: Tensor,
    state: State,
    cotangents: State,
) -> dict[str, Tensor]:
    """The outputs, and the gradients of parameters and of inputs that require one, by name."""
    outputs = call(x, state)
    values = {f"output{i}": o.detach().clone() for i, o in enumerate(outputs)}
    leaves = {"d_input": x, **{f"d_state{i}": s for i, s in enumerate(state)}}
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    leaves |= {f"d_{name}": parameter for name, parameter in parameters.items()}
    gradients = torch.autograd.grad(outputs, list(leaves.values()), cotangents)
    return values | dict(zip(leaves, (g.clone() for g in gradients), strict=True))


def check(
    cell: Cell,
    inputs: Inputs,
    *,
    input_gradients: bool = True,
    outputs: tuple[Tensor, ...] | None = None,
) -> float:
    """Run forward and backward once, compare with float64, return the largest relative error.

    With `input_gradients` false only the parameters need gradients, as in the tutorial's protocol.
    If `outputs` are given, nothing runs, and they alone are compared.
    Raises :class:`WrongResult` for a wrong value, or one that was not written.
    """
    x, state = inputs.detached(requires_grad=input_gradients)
    if outputs is None:
        poison(inputs.cotangents[0])
        cell.new_step()
        values = differentiate(cell.call, parameters(cell), x, state, inputs.cotangents)
    else:
        values = {f"output{i}": output for i, output in enumerate(outputs)}
    formula = partial(_formula, cell, inputs, values["output0"], input_gradients)
    reference = formula(torch.float64, F.linear)
    errors = {name: relative_error(value, reference[name]) for name, value in values.items()}
    limit = tolerance(cell, x)
    allowed = dict.fromkeys(reference, limit)
    if max(errors.values()) > limit and x.dim() == 3 and x.dtype is not torch.float64:
        linear = tf32_linear if tf32_allowed(x) else F.linear
        for name, value in formula(x.dtype, linear).items():
            own_error = relative_error(value, reference[name])
            allowed[name] = max(limit, min(2 * own_error, FARTHEST))
    for name, error in errors.items():
        if error > allowed[name]:
            raise WrongResult(
                f"{name} differs from float64 by {error:.2e} (relative), "
                f"allowed is {allowed[name]:.2e}"
            )
    return max(errors.values())


def _formula(
    cell: Cell,
    inputs: Inputs,
    followed: Tensor,
    input_gradients: bool,
    dtype: torch.dtype,
    linear: Linear,
) -> dict[str, Tensor]:
    """In parts of the batch: its rows share nothing but the parameters' gradients."""

    def leaf(tensor: Tensor, requires_grad: bool) -> Tensor:
        return tensor.detach().to(dtype, copy=True).requires_grad_(requires_grad)

    named = {name: leaf(parameter, True) for name, parameter in parameters(cell).items()}
    batched = (inputs.x, *inputs.state, followed, *inputs.cotangents)
    rows = max(1, LARGEST_PART // followed[..., 0, :].numel())
    parts = []
    for x, h, c, outputs, *grads in zip(*(t.split(rows, dim=-2) for t in batched), strict=True):
        call = partial(run_formula, cell.kind, named, linear=linear, followed=outputs.to(dtype))
        state = tuple(leaf(s, input_gradients) for s in (h, c))
        cotangents = tuple(grad.to(dtype) for grad in grads)
        parts.append(differentiate(call, named, leaf(x, input_gradients), state, cotangents))

    def joined(name: str) -> Tensor:
        values = [part.pop(name) for part in parts]
        return sum(values) if name.removeprefix("d_") in named else torch.cat(values, dim=-2)

    return {name: joined(name) for name in list(parts[0])}
