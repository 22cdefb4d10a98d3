"""Derivatives of the LLTM cell and layer.

`backward` calls the raw backward op of the cell (``torch.ops.lltm.backward``).
`differentiable` has the formulas of the cell in PyTorch's own operations, for a caller that
differentiates the gradients again. `gradients_through` differentiates any function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._tensors import CellGradients, SavedCell
from ._torch_private import forward_mode_is_active

if TYPE_CHECKING:
    from ._context import BackwardOpContext, Context

# The bits of a raw backward op's `needs`, in the order of its forward op's inputs.
NEEDS = (1, 2, 4, 8, 16)
NEEDS_ALL = 31

# The gradients of an op's five input tensors; None for an input that needs none.
Gradients = tuple[Tensor | None, ...]
NO_GRADIENTS: Gradients = (None,) * len(NEEDS)
Op = Callable[..., tuple[Tensor, ...]]


def setup_context(
    ctx: Context,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    output: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Saves for backward the new cell state, the gates, and all inputs except old_cell."""
    input, weights, bias, old_h, _old_cell = inputs
    _new_h, new_cell, gates = output
    ctx.save_for_backward(input, weights, bias, old_h, new_cell, gates)
    ctx.set_materialize_grads(False)


def backward(
    ctx: Context,
    grad_h: Tensor | None,
    grad_cell: Tensor | None,
    grad_gates: Tensor | None,
    *,
    op: Op | None = None,
) -> Gradients:
    """The gradients of the inputs of ``torch.ops.lltm.forward``, given those of its outputs.

    `op` calls the raw backward op with less overhead; None stands for the raw op itself.
    """
    input, weights, bias, old_h, new_cell, gates = ctx.saved_tensors
    # With create_graph=True, the gradients may be differentiated again. In forward mode,
    # incoming gradients may have tangents, which the raw op does not know.
    if torch.is_grad_enabled() or forward_mode_is_active():
        grads = CellGradients(grad_h, grad_cell, grad_gates)
        # Gates that a Function saved but did not return have no graph, so recompute them.
        saved = SavedCell(input, weights, bias, old_h, new_cell, gates=None)
        return differentiable(grads, saved, ctx.needs_input_grad)
    if grad_h is None and grad_cell is None and grad_gates is None:
        return NO_GRADIENTS
    # Only the CUDA kernels read grad_h and grad_cell with any strides. This line does not use
    # `is_cuda`, which Dynamo of torch 2.4 cannot trace in a backward pass.
    if input.device.type != "cuda":
        grad_h = contiguous(grad_h)
        grad_cell = contiguous(grad_cell)
    grad_gates = contiguous(grad_gates)
    needs = needs_mask(ctx.needs_input_grad)
    call = op or torch.ops.lltm.backward.default
    results = call(
        grad_h,
        grad_cell,
        grad_gates,
        # Hooks on saved tensors may have given them other strides.
        input.contiguous(),
        weights.contiguous(),
        bias.contiguous(),
        old_h.contiguous(),
        new_cell.contiguous(),
        contiguous(gates),
        needs,
    )
    return select_gradients(results, needs)


def contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def needs_mask(needs_input_grad: Sequence[bool]) -> int:
    """The `needs` of a raw backward op, from the flags of the forward op's first five inputs."""
    of_input, of_weights, of_bias, of_h, of_cell = needs_input_grad[:5]
    return of_input + 2 * of_weights + 4 * of_bias + 8 * of_h + 16 * of_cell


def select_gradients(results: tuple[Tensor, ...], needs: int) -> Gradients:
    """The results of a raw backward op, with None for the empty gradients that nobody needs."""
    if needs == NEEDS_ALL:
        return results
    return tuple([results[k] if needs & bit else None for k, bit in enumerate(NEEDS)])


def differentiable(grads: CellGradients, saved: SavedCell, needs_grad: Sequence[bool]) -> Gradients:
    """Gradients of (input, weights, bias, old_h, old_cell), in operations that have derivatives.

    `grads` are the gradients of the results. `needs_grad` says which of the five gradients to
    compute; the others are None, and all are None if all `grads` are.
    """
    grad_h, grad_cell, grad_gates = grads
    if grad_h is None and grad_cell is None and grad_gates is None:
        return NO_GRADIENTS
    input, weights, bias, old_h, new_cell, gates = saved
    state_size = old_h.shape[1]
    x = torch.cat([old_h, input], dim=1)
    if gates is None:
        gates = F.linear(x, weights, bias.flatten()).unflatten(1, (3, state_size))
    dtype = gates.dtype
    # Element-wise operations on 16-bit tensors are computed in float32, as in the kernels.
    compute = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    z_i, z_o, z_c = gates.to(compute).unbind(1)
    i = torch.sigmoid(z_i)
    o = torch.sigmoid(z_o)
    g = F.elu(z_c)
    # 1 - σ(z) loses all digits for large z; σ(-z) does not.
    i_rest = torch.sigmoid(-z_i)
    o_rest = torch.sigmoid(-z_o)
    # At z = 0, both this slope and its derivative equal those of F.elu. The clamp keeps exp from
    # overflowing where its value is not used.
    elu_slope = torch.where(z_c >= 0, torch.ones_like(g), torch.exp(z_c.clamp(max=0)))
    d_cell = torch.zeros_like(g) if grad_cell is None else grad_cell.to(compute)
    d_z_o = torch.zeros_like(g)
    if grad_h is not None:  # otherwise a NaN in o would reach the gradients through h
        d_h = grad_h.to(compute)
        t = torch.tanh(new_cell.to(compute))
        d_cell = d_cell + d_h * o * (1 - t * t)
        d_z_o = d_h * t * o * o_rest
    parts = [d_cell * g * i * i_rest, d_z_o, d_cell * i * elu_slope]
    d_gates = torch.stack(parts, dim=1)
    if grad_gates is not None:
        d_gates = d_gates + grad_gates.to(compute)
    d_z = d_gates.to(dtype).flatten(1)
    of_input, of_weights, of_bias, of_h, of_cell = needs_grad[:5]
    return (
        d_z @ weights[:, state_size:] if of_input else None,
        d_z.t() @ x if of_weights else None,
        d_gates.sum(0).to(dtype).reshape(bias.shape) if of_bias else None,
        d_z @ weights[:, :state_size] if of_h else None,
        d_cell.to(dtype) if of_cell else None,
    )


def gradients_through(
    function: Callable[..., Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    needs_grad: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> Gradients:
    """Gradients of some `inputs`, by running `function` and differentiating its outputs.

    `grads` are the gradients of the outputs. In grad mode, the result can be differentiated
    again.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # With views, no gradient flows from one input to another through the caller's graph.
        views = [tensor if tensor is None else tensor.view_as(tensor) for tensor in inputs]
        leaves = {k: view for k, view in enumerate(views) if view is not None and needs_grad[k]}
        pairs = [
            (output, grad)
            for output, grad in zip(function(*views), grads, strict=True)
            if output is not None and grad is not None and output.requires_grad
        ]
        if not (pairs and leaves):
            return (None,) * len(views)
        outputs, incoming = zip(*pairs, strict=True)
        of_leaves = torch.autograd.grad(
            outputs, [*leaves.values()], incoming, create_graph=create_graph, allow_unused=True
        )
    gradients = dict(zip(leaves, of_leaves, strict=True))
    return tuple(gradients.get(k) for k in range(len(views)))


def save_backward_inputs(
    ctx: BackwardOpContext, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
) -> None:
    """Saves the inputs of ``torch.ops.lltm.backward``, for its derivative."""
    *tensors, ctx.needs = inputs
    ctx.save_for_backward(*tensors)


def backward_of_backward(
    ctx: BackwardOpContext,
    grad_of_input: Tensor | None,
    grad_of_weights: Tensor | None,
    grad_of_bias: Tensor | None,
    grad_of_h: Tensor | None,
    grad_of_cell: Tensor | None,
) -> Gradients:
    """The gradients of the inputs of ``torch.ops.lltm.backward``, through `differentiable`.

    The arguments are the gradients of that op's results, which are gradients themselves.
    """
    needs_grad = [bool(ctx.needs & bit) for bit in NEEDS]

    def gradients(
        grad_h: Tensor | None,
        grad_cell: Tensor | None,
        grad_gates: Tensor | None,
        *saved: Tensor,
    ) -> Gradients:
        grads = CellGradients(grad_h, grad_cell, grad_gates)
        return differentiable(grads, SavedCell(*saved), needs_grad)

    incoming = (grad_of_input, grad_of_weights, grad_of_bias, grad_of_h, grad_of_cell)
    of_tensors = gradients_through(gradients, ctx.saved_tensors, ctx.needs_input_grad, incoming)
    return (*of_tensors, None)
