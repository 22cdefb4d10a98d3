"""Random problems, and the formulas of the cells, written independently of the code they check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .contender import Cell, State
from .schema import Size

DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
"""Dtypes by their names in reports; `tf32` is float32 with torch's flags for tf32 set."""


@dataclass(frozen=True)
class Inputs:
    """One set of inputs, and random cotangents for the outputs.

    `x` is (B, I), or (T, B, I) for a sequence. `grad_output` is the cotangent of the first output:
    h (B, S), or the outputs (T, B, S). `grad_state` holds those of the other outputs: (c,) for a
    step, the whole final state for a sequence.
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
        shape = (*(1,) * stacked, *self.state[0].shape[-2:])
        state, grad = (tuple(s.view(shape) for s in of) for of in (self.state, self.grad_state))
        return replace(self, state=state, grad_state=grad)


def make_inputs(size: Size, dtype: torch.dtype, device: str, seed: int) -> Inputs:
    """Draw one set from the normal distribution, so that no value is zero."""
    rng = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.float32).to(dtype)

    steps = (size.steps,) if size.steps > 1 else ()
    x = draw(*steps, size.batch, size.inputs)
    grad = draw(*steps, size.batch, size.state)
    h, c = draw(size.batch, size.state), draw(size.batch, size.state)
    grad_state = tuple(draw(size.batch, size.state) for _ in range(2 if steps else 1))
    if dtype is torch.float16:
        # The cell never forgets, so its gradients grow with the sequence: after some 800 steps,
        # cotangents of one give gradients beyond the range of float16.
        grad = grad / size.steps
        grad_state = tuple(g / size.steps for g in grad_state)
    return Inputs(x, (h, c), grad, grad_state)


class Calls:
    """The calls of a contender on one set of inputs.

    ``forward()`` records gradients of all inputs, ``plain()`` only of the parameters.
    """

    def __init__(self, cell: Cell, inputs: Inputs) -> None:
        x, state = inputs.detached(requires_grad=True)
        self.forward = partial(cell.call, x, state)
        self.plain = partial(cell.call, *inputs.detached(requires_grad=False))
        self.leaves = [x, *state, *cell.module.parameters()]
        self.cotangents = (inputs.grad_output, *inputs.grad_state)
        self.steps = x.shape[0] if x.dim() == 3 else 1

    def backward(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, self.leaves, self.cotangents)


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
    sum_dtype = torch.promote_types(x.dtype, torch.float32)
    state = (state[0], *(c.to(sum_dtype) for c in state[1:]))
    outputs = []
    for t, x_t in enumerate(x.unbind(0)):
        if followed is not None and t > 0:
            h = state[0]
            # The value of `followed`, with the derivative of the formula's h: the difference is 0.
            state = (followed[t - 1] + (h - h.detach()), *state[1:])
        h, *cells = step(p, x_t, state, linear)
        state = (h.to(x.dtype), *cells)
        outputs.append(state[0])
    return (torch.stack(outputs), *(s.to(x.dtype) for s in state))
