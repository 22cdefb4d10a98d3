"""Derivatives of the LLTM cell: one pair of functions for every way torch asks for them.

`torch.library.register_autograd` and the autograd Functions of `functions` all end here. The op's
third output, the gates' pre-activations, is differentiable, so that derivatives of the backward
pass flow through what it reads. Where gates are kept without being an output, as in eager mode,
such derivatives make them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["backward", "backward_of_backward", "differentiable_backward", "setup_context"]

# The bits of the raw backward op's `needs`, in the order of the forward op's inputs.
NEEDS = (1, 2, 4, 8, 16)

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    """Keeps what backward reads: 3·B·S elements beyond the step's inputs and outputs."""
    input, weights, bias, old_h, _old_cell = inputs
    _new_h, new_cell, gates = output
    ctx.save_for_backward(input, weights, bias, old_h, new_cell, gates)
    ctx.set_materialize_grads(False)


def backward(
    ctx: Any, grad_h: Tensor | None, grad_cell: Tensor | None, grad_gates: Tensor | None
) -> Gradients:
    """Gradients of (input, weights, bias, old_h, old_cell); None where none is wanted."""
    if torch.is_grad_enabled():  # somebody will differentiate this again
        return differentiable_backward(ctx, grad_h, grad_cell, grad_gates)
    op = torch.ops.lltm.backward.default
    saved = ctx.saved_tensors
    # A sum's gradient is one number, expanded: CUDA kernels read it as it lies. Not `is_cuda`: the
    # dynamo of torch 2.4 does not let a backward pass ask that.
    if saved[0].device.type != "cuda":
        grad_h, grad_cell = contiguous(grad_h), contiguous(grad_cell)
    return backward_through(op, saved, ctx.needs_input_grad, grad_h, grad_cell, grad_gates)


def contiguous(grad: Tensor | None) -> Tensor | None:
    """A gradient as the kernels read it, if there is one."""
    return None if grad is None else grad.contiguous()


def backward_through(
    op: Callable[..., tuple[Tensor, ...]],
    saved: tuple[Tensor, ...],
    wanted: tuple[bool, ...],
    grad_h: Tensor | None,
    grad_cell: Tensor | None,
    grad_gates: Tensor | None,
) -> Gradients:
    """`backward`, by a raw op that takes the incoming gradients, what was saved, and `needs`."""
    if grad_gates is not None:
        grad_gates = grad_gates.contiguous()
    elif grad_h is None and grad_cell is None:
        return (None,) * 5
    of_input, of_weights, of_bias, of_old_h, of_old_cell = wanted
    d_input, d_weights, d_bias, d_old_h, d_old_cell = op(
        grad_h,
        grad_cell,
        grad_gates,
        *saved,
        of_input + 2 * of_weights + 4 * of_bias + 8 * of_old_h + 16 * of_old_cell,
    )
    return (
        d_input if of_input else None,
        d_weights if of_weights else None,
        d_bias if of_bias else None,
        d_old_h if of_old_h else None,
        d_old_cell if of_old_cell else None,
    )


def differentiable_backward(
    ctx: Any, grad_h: Tensor | None, grad_cell: Tensor | None, grad_gates: Tensor | None
) -> Gradients:
    """The same gradients in PyTorch's own, differentiable operations."""
    if grad_h is None and grad_cell is None and grad_gates is None:
        return (None,) * 5
    return _composite(
        grad_h, grad_cell, grad_gates, *ctx.saved_tensors, wanted=ctx.needs_input_grad
    )


def _composite(
    grad_h: Tensor | None,
    grad_cell: Tensor | None,
    grad_gates: Tensor | None,
    input: Tensor,
    weights: Tensor,
    bias: Tensor,
    old_h: Tensor,
    new_cell: Tensor,
    gates: Tensor | None,
    *,
    wanted: tuple[bool, ...],
) -> Gradients:
    if gates is None:
        z = F.linear(torch.cat([old_h, input], dim=1), weights, bias.flatten())
        gates = z.unflatten(1, (3, old_h.shape[1]))
    dtype = gates.dtype
    # 16-bit tensors are computed in float32, as the kernels do.
    compute = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    z_i, z_o, z_c = gates.to(compute).unbind(1)
    i, o, g = torch.sigmoid(z_i), torch.sigmoid(z_o), F.elu(z_c)
    # 1 - σ(z) loses all digits for large z; σ(-z) does not.
    i_rest, o_rest = torch.sigmoid(-z_i), torch.sigmoid(-z_o)
    elu_slope = torch.where(g >= 0, torch.ones_like(g), g + 1)
    t = torch.tanh(new_cell.to(compute))
    zero = torch.zeros_like(t)
    upstream_h = zero if grad_h is None else grad_h.to(compute)
    upstream_cell = zero if grad_cell is None else grad_cell.to(compute)

    d_cell = upstream_cell + upstream_h * o * (1 - t * t)
    d_gates = torch.stack(
        [d_cell * g * i * i_rest, upstream_h * t * o * o_rest, d_cell * i * elu_slope], dim=1
    )
    if grad_gates is not None:
        d_gates = d_gates + grad_gates.to(compute)
    d_z = d_gates.to(dtype).flatten(1)

    state_size = old_h.shape[1]
    weights_h, weights_x = weights[:, :state_size], weights[:, state_size:]
    return (
        d_z @ weights_x if wanted[0] else None,
        d_z.t() @ torch.cat([old_h, input], dim=1) if wanted[1] else None,
        d_gates.sum(0).to(dtype).reshape(bias.shape) if wanted[2] else None,
        d_z @ weights_h if wanted[3] else None,
        d_cell.to(dtype) if wanted[4] else None,
    )


class _Saved:
    """What backward reads from a context, held by hand."""

    def __init__(
        self, saved_tensors: tuple[Tensor | None, ...], needs_input_grad: tuple[bool, ...]
    ):
        self.saved_tensors = saved_tensors
        self.needs_input_grad = needs_input_grad


def without_gates(saved: tuple[Tensor, ...], wanted: tuple[bool, ...]) -> _Saved:
    """What the composite reads from a context whose gates are no part of the graph."""
    return _Saved((*saved[:5], None), wanted)


def setup_context_of_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keeps the raw backward op's own inputs, for its own derivative."""
    *tensors, needs = inputs
    ctx.save_for_backward(*tensors)
    ctx.needs = needs


def backward_of_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    """Derivatives of the raw backward op, through the composite."""
    again = torch.is_grad_enabled()
    inputs = list(ctx.saved_tensors)
    with torch.enable_grad():
        if not again:
            inputs = [None if x is None else x.detach() for x in inputs]
        leaves = []
        for k, (tensor, needed) in enumerate(zip(inputs, ctx.needs_input_grad, strict=False)):
            if tensor is not None and needed:
                # A view keeps the caller's graph apart from the one built here.
                inputs[k] = tensor.view_as(tensor) if again else tensor.requires_grad_()
                leaves.append(k)
        wanted = tuple(bool(ctx.needs & bit) for bit in NEEDS)
        saved = _Saved(tuple(inputs[3:]), wanted)
        outputs = differentiable_backward(saved, *inputs[:3])
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if output is not None and grad is not None and output.requires_grad
        ]
        if not pairs or not leaves:
            return (None,) * (len(inputs) + 1)
        found = torch.autograd.grad(
            [output for output, _ in pairs],
            [inputs[k] for k in leaves],
            [grad for _, grad in pairs],
            create_graph=again,
            allow_unused=True,
        )
    result: list[Tensor | None] = [None] * (len(inputs) + 1)
    for k, gradient in zip(leaves, found, strict=True):
        result[k] = gradient
    return tuple(result)
