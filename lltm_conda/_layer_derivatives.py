"""Derivatives of a layer of LLTM cells over a whole sequence, in one direction.

`setup_context` and `backward` serve `torch.library.register_autograd`, `gradients` that and the
autograd Function of eager mode. Of the op's outputs all but the gates are differentiable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._derivatives import contiguous
from .functions import lltm

__all__ = [
    "backward",
    "gradients",
    "refuse_backward_of_backward",
    "setup_context",
    "steps_of_cells",
]

Sequence = tuple[Tensor, Tensor, Tensor, Tensor]
Gradients = tuple[Tensor | None, ...]


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keeps, beyond inputs and output, 4·B·S elements a step; 3·B·S without cells."""
    *tensors, reverse, keep_cells, allow_tf32 = inputs
    states, _final_h, _final_cell, gates, cells = output
    ctx.save_for_backward(*tensors, states, gates, cells)
    ctx.reverse, ctx.allow_tf32 = reverse, allow_tf32
    ctx.mark_non_differentiable(*((gates,) if keep_cells else (gates, cells)))
    ctx.set_materialize_grads(False)


def backward(
    ctx: Any,
    grad_output: Tensor | None,
    grad_final_h: Tensor | None,
    grad_final_cell: Tensor | None,
    _grad_gates: Tensor | None,
    grad_cells: Tensor | None,
) -> Gradients:
    """Gradients of (input, weights, bias, initial_h, initial_cell), and None for each option."""
    grads = (grad_output, grad_final_h, grad_final_cell, grad_cells)
    op = torch.ops.lltm.layer_backward.default
    return (*gradients(op, ctx, ctx.saved_tensors, grads), None, None, None)


def gradients(
    op: Callable[..., tuple[Tensor, ...]], ctx: Any, saved: tuple[Any, ...], grads: Gradients
) -> Gradients:
    """Gradients of the op's five tensors, by the raw backward op called through `op`.

    `grads` are those of (output, final_h, final_cell, cells); `ctx` knows which are wanted, and the
    options.
    """
    # Not `grads == (None, ...)`: a tensor takes long to find that None is no number.
    if all(grad is None for grad in grads):
        return (None,) * 5
    wanted = ctx.needs_input_grad[:5]
    if torch.is_grad_enabled():  # somebody will differentiate this again
        return _differentiable_gradients(saved[:5], grads, wanted, ctx.reverse)
    of_input, of_weights, of_bias, of_h, of_cell = wanted
    d_input, d_weights, d_bias, d_h, d_cell = op(
        *[contiguous(grad) for grad in grads],
        *saved,
        of_input + 2 * of_weights + 4 * of_bias + 8 * of_h + 16 * of_cell,
        ctx.reverse,
        ctx.allow_tf32,
    )
    return (
        d_input if of_input else None,
        d_weights if of_weights else None,
        d_bias if of_bias else None,
        d_h if of_h else None,
        d_cell if of_cell else None,
    )


def steps_of_cells(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool,
) -> Sequence:
    """(output, final_h, final_cell, cells) step by step: slower, differentiable to any order.

    States are (B, S) or (1, B, S), and final ones have the form of the initial ones.
    """
    state_size = weights.shape[0] // 3
    if bias is None:
        bias = weights.new_zeros(3 * state_size)
    zeros = input.new_zeros(input.shape[1], state_size)
    h = zeros if initial_h is None else _matrix(initial_h)
    cell = zeros if initial_cell is None else _matrix(initial_cell)
    states, cells = [], []
    inputs = input.unbind(0)
    for x in reversed(inputs) if reverse else inputs:
        h, cell = lltm(x, weights, bias, h, cell)
        states.append(h)
        cells.append(cell)
    if reverse:
        states.reverse()
        cells.reverse()
    final_h, final_cell = _in_form_of(initial_h, h), _in_form_of(initial_cell, cell)
    return torch.stack(states), final_h, final_cell, torch.stack(cells)


def _matrix(state: Tensor) -> Tensor:
    return state.squeeze(0) if state.dim() == 3 else state


def _in_form_of(model: Tensor | None, state: Tensor) -> Tensor:
    return state.unsqueeze(0) if model is not None and model.dim() == 3 else state


def _differentiable_gradients(
    saved: tuple[Tensor | None, ...], grads: Gradients, wanted: tuple[bool, ...], reverse: bool
) -> Gradients:
    """The same gradients through a loop over the cell, with a graph of their own."""
    with torch.enable_grad():
        # Views keep the caller's graph apart from the one built here.
        inputs: list[Any] = [None if t is None else t.view_as(t) for t in saved]
        input, weights, bias, initial_h, initial_cell = inputs
        outputs = steps_of_cells(input, weights, bias, initial_h, initial_cell, reverse)
        # A module's final states are (1, B, S) without initial ones as well, those here (B, S).
        pairs = [
            (o, g.reshape(o.shape)) for o, g in zip(outputs, grads, strict=True) if g is not None
        ]
        leaves = [k for k, needed in enumerate(wanted) if needed]
        found = torch.autograd.grad(
            [output for output, _ in pairs],
            [inputs[k] for k in leaves],
            [grad for _, grad in pairs],
            create_graph=True,
            allow_unused=True,
        )
    result: list[Tensor | None] = [None] * len(inputs)
    for k, gradient in zip(leaves, found, strict=True):
        result[k] = gradient
    return tuple(result)


def refuse_backward_of_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    """The raw backward op called by hand: its derivative is not a function of what it was given."""
    raise NotImplementedError(
        "lltm: torch.ops.lltm.layer_backward has no derivative of its own; differentiate "
        "torch.ops.lltm.layer_forward or LLTMLayer with create_graph=True instead"
    )
