"""Compares the outputs and gradients of a contender with the formulas of this file, in float64.

The formulas share no code with the package; `measurements/README.md` describes the
comparison.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce

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
"""The largest allowed ||out - ref|| / ||ref|| of an output or gradient of one step."""
TF32_TOLERANCE = 3e-3
"""The tolerance for one step in float32 where torch's flags allow tf32 products."""
FARTHEST = 0.25
"""The largest relative error that a sequence may have. An output of zeros has an error of 1."""
LARGEST_PART = 2**28
"""The most elements that all h of one part of a batch have, unless the part is a single row.

The formula takes a batch in parts; autograd keeps about ten tensors of that size.
"""


class WrongResult(RuntimeError):
    """A contender's output or gradient is too far from float64, so its times mean nothing."""


Linear = Callable[[Tensor, Tensor, Tensor], Tensor]


def rounded_to_tf32(tensor: Tensor) -> Tensor:
    """float32 rounded to the nearest value with a mantissa of ten bits, as for tensor cores."""
    return ((tensor.detach().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def tf32_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`F.linear` in float32 that rounds `x`, and in backward the product's gradient, to tf32.

    The caller rounds `weight`: a rounded copy for every step might not fit into a GPU's
    memory. A GPU may round like this if torch's flag allows tf32, but not for every shape: it
    multiplies a single row by a matrix in float32.
    """
    z = F.linear(x + (rounded_to_tf32(x) - x).detach(), weight)
    z.register_hook(rounded_to_tf32)
    return z + bias


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


def lstm_step_of_one_bias(
    p: Mapping[str, Tensor], x: Tensor, state: State, linear: Linear = F.linear
) -> State:
    return lstm_step({**p, "bias_hh": torch.zeros_like(p["bias_ih"])}, x, state, linear)


def gru_step(p: Mapping[str, Tensor], x: Tensor, state: State, linear: Linear = F.linear) -> State:
    h, c = state
    of_x = linear(x, p["weight_ih"], p["bias_ih"]).chunk(3, dim=1)
    of_h = linear(h, p["weight_hh"], p["bias_hh"]).chunk(3, dim=1)
    r, z = (torch.sigmoid(of_x[k] + of_h[k]) for k in (0, 1))
    n = torch.tanh(of_x[2] + r * of_h[2])
    return (1 - z) * n + z * h, c


STEPS = {
    "lltm": lltm_step,
    "lstm": lstm_step,
    "lstm-one-bias": lstm_step_of_one_bias,
    "gru": gru_step,
}


def run_formula(
    kind: str,
    p: Mapping[str, Tensor],
    x: Tensor,
    state: State,
    *,
    linear: Linear = F.linear,
    followed: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """What `Cell.call` returns, by the formula of this kind.

    If `followed` (T, B, S) is given, every step of a sequence but the first takes its
    previous h from it. A sequence adds up c in float64 if `x` is float64, and otherwise in
    float32.
    """
    step = STEPS[kind]
    if x.dim() == 2:
        return step(p, x, state, linear)
    h = state[0][0]
    c = state[1][0].to(torch.promote_types(x.dtype, torch.float32))
    outputs: list[Tensor] = []
    for t, x_t in enumerate(x):
        if followed is not None and t > 0:
            # The difference is 0: h gets the value of `followed` and the derivative of the
            # formula.
            h = followed[t - 1] + (h - h.detach())
        h, c = step(p, x_t, (h, c), linear)
        h = h.to(x.dtype)
        outputs.append(h)
    return torch.stack(outputs), h[None], c[None].to(x.dtype)


def parameters(cell: Cell) -> dict[str, Tensor]:
    """The parameters by their names in the formulas: `weight_ih` for `weight_ih_l0`."""
    named = cell.module.named_parameters()
    return {name.rsplit(".", 1)[-1].removesuffix("_l0"): value for name, value in named}


def tf32_allowed(x: Tensor) -> bool:
    """Whether torch's flags allow tf32 products for a contender with this input."""
    if x.dtype is not torch.float32 or not x.is_cuda:
        return False
    # cuDNN's recurrences follow cuDNN's flag, which is on by default.
    sequence = x.dim() == 3 and torch.backends.cudnn.allow_tf32
    return torch.backends.cuda.matmul.allow_tf32 or sequence


def relative_error(value: Tensor, reference: Tensor) -> float:
    """||value - reference|| / ||reference|| in float64; NaN counts as infinite.

    The divisor is 1 if ||reference|| is 0. A sequence (T, B, ...) has its worst step's error.
    """
    # Steps differ by orders of magnitude: one norm of all would show only the largest step.
    dims = (1, 2) if reference.dim() == 3 else None
    difference = torch.linalg.vector_norm(value.detach().double() - reference, dim=dims)
    scale = torch.linalg.vector_norm(reference, dim=dims)
    error = torch.where(scale > 0, difference / scale, difference).max().item()
    return error if math.isfinite(error) else math.inf


def poison(output: Tensor) -> None:
    """Leave NaN in memory that the allocator may reuse next, so that an unwritten output shows."""
    _ = [output.new_full((n * output.numel(),), math.nan) for n in (1, 1, 1, 3, 3)]


def differentiate(
    call: Callable[[Tensor, State], tuple[Tensor, ...]],
    parameters: Mapping[str, Tensor],
    inputs: Inputs,
    *,
    input_gradients: bool,
) -> dict[str, Tensor]:
    """The outputs and gradients by name; gradients of inputs only if `input_gradients` is true."""
    x, state = inputs.detached(requires_grad=input_gradients)
    outputs = call(x, state)
    leaves: dict[str, Tensor] = {}
    if input_gradients:
        leaves |= {"d_input": x, "d_state0": state[0], "d_state1": state[1]}
    leaves |= {f"d_{name}": parameter for name, parameter in parameters.items()}
    gradients = torch.autograd.grad(outputs, list(leaves.values()), inputs.cotangents)
    values = {f"output{i}": output.detach() for i, output in enumerate(outputs)}
    return values | dict(zip(leaves, gradients, strict=True))


def check(
    cell: Cell,
    inputs: Inputs,
    *,
    input_gradients: bool = True,
    outputs: tuple[Tensor, ...] | None = None,
) -> float:
    """Run forward and backward once, compare with float64, and return the largest relative error.

    With `input_gradients` false only the parameters need gradients, as in the tutorial's
    protocol. If `outputs` are given, the contender does not run, and only these outputs are
    compared. Raises :class:`WrongResult` if a value is wrong or was not written.
    """
    if outputs is None:
        poison(inputs.cotangents[0])
        own = parameters(cell)
        values = differentiate(cell.call, own, inputs, input_gradients=input_gradients)
    else:
        values = {f"output{i}": output for i, output in enumerate(outputs)}
    formula = Formula(cell, inputs, followed=values["output0"], input_gradients=input_gradients)
    reference = formula.evaluate(torch.float64)
    errors = {name: relative_error(value, reference[name]) for name, value in values.items()}
    dtype = inputs.x.dtype
    tf32 = tf32_allowed(inputs.x)
    is_sequence = inputs.x.dim() == 3
    of_step = TF32_TOLERANCE if tf32 else TOLERANCE[dtype]
    limit = of_step * cell.slack * (2.0 if is_sequence else 1.0)
    allowed = dict.fromkeys(reference, limit)
    if max(errors.values()) > limit and is_sequence and dtype is not torch.float64:
        for name, value in formula.evaluate(dtype, tf32=tf32).items():
            own_error = relative_error(value, reference[name])
            allowed[name] = max(limit, min(2 * own_error, FARTHEST))
    for name, error in errors.items():
        if error > allowed[name]:
            raise WrongResult(
                f"{name} differs from float64 by {error:.2e} (relative), "
                f"allowed is {allowed[name]:.2e}"
            )
    return max(errors.values())


@dataclass(frozen=True)
class Formula:
    """The formula of a contender, at the contender's parameters and inputs."""

    cell: Cell
    inputs: Inputs
    followed: Tensor
    """The contender's own output; a sequence takes the h of every step before from it."""
    input_gradients: bool

    def evaluate(self, dtype: torch.dtype, *, tf32: bool = False) -> dict[str, Tensor]:
        """What `differentiate` returns for the formula, computed in parts of the batch.

        The rows of a batch share only the gradients of the parameters, which are summed over
        the parts.
        """
        linear = tf32_linear if tf32 else F.linear
        own = self._parameters(dtype, tf32=tf32)
        batched = (self.inputs.x, *self.inputs.state, self.followed, *self.inputs.cotangents)
        rows = max(1, LARGEST_PART // self.followed[..., 0, :].numel())
        parts = []
        for part in zip(*(tensor.split(rows, dim=-2) for tensor in batched), strict=True):
            x, h, c, outputs, *cotangents = (tensor.to(dtype) for tensor in part)
            call = partial(run_formula, self.cell.kind, own, linear=linear, followed=outputs)
            inputs = Inputs(x, (h, c), tuple(cotangents))
            parts.append(differentiate(call, own, inputs, input_gradients=self.input_gradients))

        def joined(name: str) -> Tensor:
            values = [part.pop(name) for part in parts]
            if name.removeprefix("d_") in own:
                return reduce(torch.add, values)
            return torch.cat(values, dim=-2)

        return {name: joined(name) for name in list(parts[0])}

    def _parameters(self, dtype: torch.dtype, *, tf32: bool) -> dict[str, Tensor]:
        """The contender's parameters as leaves of this dtype; with tf32, weights are rounded."""
        leaves = {}
        for name, value in parameters(self.cell).items():
            leaf = value.detach().to(dtype)
            if tf32 and name.startswith("weight"):
                leaf = rounded_to_tf32(leaf)
            leaves[name] = leaf.requires_grad_()
        return leaves
