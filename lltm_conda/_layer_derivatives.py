"""Derivatives of a layer of LLTM cells over a whole sequence, in one direction.

The autograd Function of eager mode calls `gradients`. So does `backward`, which `register` gives to
torch, with `setup_context`, as the raw op's autograd formula. All outputs of the raw op except the
gates are differentiable. First derivatives are the raw backward op's; higher ones go through a loop
over the cell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._derivatives import Gradients, by_kernels, contiguous, gradients_through
from .functions import lltm


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Saves inputs and output, and 4·B·S elements per step, or 3·B·S without `keep_cells`."""
    *tensors, ctx.reverse, keep_cells, ctx.allow_tf32 = inputs
    states, _final_h, _final_cell, gates, cells = output
    ctx.save_for_backward(*tensors, states, gates, cells)
    ctx.mark_non_differentiable(*((gates,) if keep_cells else (gates, cells)))
    ctx.set_materialize_grads(False)


def backward(ctx: Any, *grads: Tensor | None) -> Gradients:
    """The raw op's backward pass: gradients of its tensors, and None for each option.

    `grads` are those of (output, final_h, final_cell, gates, cells).
    """
    op = torch.ops.lltm.layer_backward.default
    return (*gradients(op, ctx, (*grads[:3], grads[4])), None, None, None)


def gradients(
    op: Callable[..., tuple[Tensor, ...]], ctx: Any, grads: tuple[Tensor | None, ...]
) -> Gradients:
    """Gradients of (input, weights, bias, initial_h, initial_cell) by `op`, the raw backward op.

    `grads` are those of (output, final_h, final_cell, cells); None stands for zeros.
    """
    saved, wanted = ctx.saved_tensors, ctx.needs_input_grad
    if torch.is_grad_enabled():  # create_graph=True: these will be differentiated again
        steps = partial(steps_of_cells, ctx.reverse)
        return gradients_through(steps, saved[:5], wanted, grads)
    grads = tuple([contiguous(grad) for grad in grads])
    return by_kernels(op, grads, saved, wanted, ctx.reverse, ctx.allow_tf32)


def steps_of_cells(
    reverse: bool,
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(output, final_h, final_cell, cells) step by step: slower, differentiable to any order.

    States are (B, S) or (1, B, S); the final states have the shape of the initial ones.
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
    final_h = h if initial_h is None else h.reshape(initial_h.shape)
    final_cell = cell if initial_cell is None else cell.reshape(initial_cell.shape)
    return torch.stack(states), final_h, final_cell, torch.stack(cells)


def _matrix(state: Tensor) -> Tensor:
    return state.squeeze(0) if state.dim() == 3 else state


def refuse_backward_of_backward(ctx: Any, *grads: Tensor | None) -> Gradients:
    """For a direct call of the raw backward op: its inputs do not determine its derivative."""
    raise NotImplementedError(
        "lltm: torch.ops.lltm.layer_backward has no derivative of its own; differentiate "
        "torch.ops.lltm.layer_forward or LLTMLayer with create_graph=True instead"
    )
