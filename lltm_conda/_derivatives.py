"""Derivatives of the LLTM cell and layer.

`by_kernels` calls a raw backward op (``torch.ops.lltm``), of the cell or of a layer.
`differentiable` has the formulas of the cell in PyTorch's own operations, for a caller that
differentiates the gradients again. `gradients_through` differentiates any function.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# The bits of a raw backward op's `needs`, in the order of its forward op's inputs.
NEEDS = (1, 2, 4, 8, 16)

Gradients = tuple[Tensor | None, ...]
Tensors = Sequence[Tensor | None]
Op = Callable[..., tuple[Tensor, ...]]


def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    """Saves for backward the new cell state, the gates, and all inputs except old_cell."""
    input, weights, bias, old_h, _old_cell = inputs
    _new_h, new_cell, gates = output
    ctx.save_for_backward(input, weights, bias, old_h, new_cell, gates)
    ctx.set_materialize_grads(False)


def backward(ctx: Any, *grads: Tensor | None, op: Op | None = None) -> Gradients:
    """The gradients of the inputs of ``torch.ops.lltm.forward``, given those of its outputs.

    `op` calls the raw backward op with less overhead; None stands for the raw op itself.
    """
    saved, wanted = ctx.saved_tensors, ctx.needs_input_grad
    if torch.is_grad_enabled():  # create_graph=True: the gradients may be differentiated again
        # Gates that a Function saved but did not return have no graph, so recompute them.
        return differentiable(grads, (*saved[:5], None), wanted)
    grad_h, grad_cell, grad_gates = grads
    # Only the CUDA kernels read grad_h and grad_cell with any strides. This line does not use
    # `is_cuda`, which Dynamo of torch 2.4 cannot trace in a backward pass.
    if saved[0].device.type != "cuda":
        grad_h, grad_cell = contiguous(grad_h), contiguous(grad_cell)
    grads = (grad_h, grad_cell, contiguous(grad_gates))
    return by_kernels(op or torch.ops.lltm.backward.default, grads, saved, wanted)


def contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def by_kernels(
    op: Op, grads: Tensors, saved: Sequence[Any], wanted: Sequence[bool], *options: Any
) -> Gradients:
    """Computes, by a raw backward op, the gradients of the five tensors that its forward op takes.

    `grads` are the gradients of the forward op's differentiable outputs, where None stands for
    zeros. `wanted` says which of the five gradients to compute; the others are None, and all are
    None if all `grads` are. `op` gets `grads`, `saved`, `wanted` as a mask, and `options`.
    """
    if all(grad is None for grad in grads):
        return (None,) * 5
    of_input, of_weights, of_bias, of_h, of_cell = wanted[:5]
    needs = of_input + 2 * of_weights + 4 * of_bias + 8 * of_h + 16 * of_cell
    found = op(*grads, *saved, needs, *options)
    return tuple([found[k] if wanted[k] else None for k in range(5)])


def differentiable(grads: Tensors, saved: Sequence[Any], wanted: Sequence[bool]) -> Gradients:
    """Gradients of (input, weights, bias, old_h, old_cell), in operations that have derivatives.

    `grads` are the gradients of (new_h, new_cell, gates), where None stands for zeros. `saved` is
    (input, weights, bias, old_h, new_cell, gates); if its gates are None, they are computed here.
    `wanted` is as in `by_kernels`.
    """
    grad_h, grad_cell, grad_gates = grads
    if grad_h is None and grad_cell is None and grad_gates is None:
        return (None,) * 5
    input, weights, bias, old_h, new_cell, gates = saved
    state_size = old_h.shape[1]
    x = torch.cat([old_h, input], dim=1)
    if gates is None:
        gates = F.linear(x, weights, bias.flatten()).unflatten(1, (3, state_size))
    dtype = gates.dtype
    # Element-wise operations on 16-bit tensors are computed in float32, as in the kernels.
    compute = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    z_i, z_o, z_c = gates.to(compute).unbind(1)
    i, o, g = torch.sigmoid(z_i), torch.sigmoid(z_o), F.elu(z_c)
    # 1 - σ(z) loses all digits for large z; σ(-z) does not.
    i_rest, o_rest = torch.sigmoid(-z_i), torch.sigmoid(-z_o)
    # At z = 0, both this slope and its derivative equal those of F.elu.
    elu_slope = torch.where(g >= 0, torch.ones_like(g), g + 1)
    t = torch.tanh(new_cell.to(compute))
    d_h = torch.zeros_like(t) if grad_h is None else grad_h.to(compute)
    d_cell = torch.zeros_like(t) if grad_cell is None else grad_cell.to(compute)

    d_cell = d_cell + d_h * o * (1 - t * t)
    parts = [d_cell * g * i * i_rest, d_h * t * o * o_rest, d_cell * i * elu_slope]
    d_gates = torch.stack(parts, dim=1)
    if grad_gates is not None:
        d_gates = d_gates + grad_gates.to(compute)
    d_z = d_gates.to(dtype).flatten(1)
    return (
        d_z @ weights[:, state_size:] if wanted[0] else None,
        d_z.t() @ x if wanted[1] else None,
        d_gates.sum(0).to(dtype).reshape(bias.shape) if wanted[2] else None,
        d_z @ weights[:, :state_size] if wanted[3] else None,
        d_cell.to(dtype) if wanted[4] else None,
    )


def gradients_through(
    function: Callable[..., Tensors], inputs: Tensors, wanted: Sequence[bool], grads: Tensors
) -> Gradients:
    """Gradients of the `wanted` inputs, by running `function` and differentiating its outputs.

    `grads` are the gradients of the outputs. In grad mode, the result can be differentiated again.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # With views, no gradient flows from one input to another through the caller's graph.
        views = [tensor if tensor is None else tensor.view_as(tensor) for tensor in inputs]
        leaves = {k: view for k, view in enumerate(views) if view is not None and wanted[k]}
        pairs = [
            (output, grad)
            for output, grad in zip(function(*views), grads, strict=True)
            if output is not None and grad is not None and output.requires_grad
        ]
        if not (pairs and leaves):
            return (None,) * len(views)
        outputs, incoming = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            outputs, [*leaves.values()], incoming, create_graph=create_graph, allow_unused=True
        )
    gradients = dict(zip(leaves, found, strict=True))
    return tuple(gradients.get(k) for k in range(len(views)))


def save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Saves the inputs of ``torch.ops.lltm.backward``, for its derivative."""
    *tensors, ctx.needs = inputs
    ctx.save_for_backward(*tensors)


def backward_of_backward(ctx: Any, *grads: Tensor | None) -> Gradients:
    """The gradients of the inputs of ``torch.ops.lltm.backward``, through `differentiable`."""
    wanted = [bool(ctx.needs & bit) for bit in NEEDS]

    def gradients(*tensors: Tensor | None) -> Gradients:
        return differentiable(tensors[:3], tensors[3:], wanted)

    found = gradients_through(gradients, ctx.saved_tensors, ctx.needs_input_grad, grads)
    return (*found, None)
