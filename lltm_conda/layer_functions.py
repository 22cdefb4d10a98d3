"""One direction of an LLTM layer over a whole sequence, as a function.

What `lltm_sequence` does, on both devices::

    forward    _LayerFunction.forward -> torch.ops.lltm.layer_forward
    backward   _LayerFunction.backward -> _layer_derivatives.gradients
               -> torch.ops.lltm.layer_backward

As for the cell (see `functions`), torch asks for derivatives in three ways: eager mode takes
`_LayerFunction`, compilers and callers of the raw op take what `register` tells torch about it,
and ``torch.func`` and ``torch.vmap`` take a loop over the cell, which has rules for both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import _layer_derivatives
from ._fake import fake_layer_backward, fake_layer_forward
from ._refusals import refusal
from ._registration import register
from ._torch_private import (
    apply_in_c,
    autocast_is_active,
    below_autograd,
    forward_mode_is_active,
    functorch_is_active,
    in_c,
)
from .functions import autocast, refuse_forward_mode
from .loader import check_cuda

__all__ = ["lltm_sequence", "run_sequence"]

Sequence = tuple[Tensor, Tensor, Tensor, Tensor]
Arguments = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]

register(
    "layer_forward",
    fake_layer_forward,
    _layer_derivatives.backward,
    _layer_derivatives.setup_context,
)
register("layer_backward", fake_layer_backward, _layer_derivatives.refuse_backward_of_backward)
_forward_op = torch.ops.lltm.layer_forward.default
_forward_in_c = in_c(_forward_op)
_backward_in_c = in_c(torch.ops.lltm.layer_backward.default)
# From 2.9 on, reading the older flag raises if the newer one was set. Compares versions, not text.
_NEWER_TF32_FLAG = torch.__version__ >= "2.9"
_NAMES = ("input", "weights", "bias", "initial_h", "initial_cell")


def lltm_sequence(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_cell: Tensor | None = None,
    *,
    reverse: bool = False,
    keep_cells: bool = True,
) -> Sequence:
    """Runs the LLTM cell over a sequence: a loop over :func:`lltm_conda.lltm`, in one op.

    Non-contiguous arguments are copied. Under ``torch.autocast`` arguments are cast to its dtype.
    Under ``torch.func`` and ``torch.vmap`` it runs as that loop, with the same results up to
    rounding. In 16 bits, the loop is less exact, since it rounds the cell state at every step.

    Args:
        input: ``(T, B, I)``, T >= 1; float32, float64, float16 or bfloat16, on the CPU or a CUDA
            device. All other arguments have its dtype and device.
        weights: ``(3S, S + I)``; the columns of ``h`` come first, the rows in the order i, o, c.
        bias: ``(3S,)`` or ``(1, 3S)``; none when None.
        initial_h: ``(B, S)`` or ``(1, B, S)``, the hidden state before the first step; zeros when
            None.
        initial_cell: likewise, the cell state before the first step.
        reverse: start at the last step and go back to the first.
        keep_cells: keep the cell state of every step for backward. If False, backward computes them
            again.

    Returns:
        ``(output, final_h, final_cell, cells)``: the hidden state of every step ``(T, B, S)``, both
        states after the last step, shaped like the initial ones or ``(B, S)``, and the cell state
        of every step ``(T, B, S)``, which without `keep_cells` has no elements. Differentiable to
        any order in reverse mode; orders beyond the first go step by step.

    Raises:
        RuntimeError: an argument has a wrong shape, dtype or device; the text names it.
        NotImplementedError: forward-mode differentiation, or a layout or device without kernels.
    """
    tensors = (input, weights, bias, initial_h, initial_cell)
    return run_sequence(tensors, reverse, keep_cells, stacked=False)


def run_sequence(tensors: Arguments, reverse: bool, keep_cells: bool, stacked: bool) -> Sequence:
    """`lltm_sequence`; if `stacked`, states are (1, B, S), like those of a module with one layer.

    If `stacked`, both initial states are given, or neither.
    """
    input = tensors[0]
    if is_compiling():
        return _traceable(tensors, reverse, keep_cells, stacked)
    try:
        if input.is_cuda:
            check_cuda(input.device)
        if functorch_is_active():
            return _traceable(tensors, reverse, keep_cells, stacked)
        operands = _operands(tensors, reverse, keep_cells)
        if torch.is_grad_enabled() or forward_mode_is_active():
            return _apply(*operands, stacked)  # type: ignore[no-any-return]
        output, final_h, final_cell, _, cells = _forward(operands, stacked)
        return output, final_h, final_cell, cells
    except (RuntimeError, AttributeError, TypeError) as error:
        present = [(n, t) for n, t in zip(_NAMES, tensors, strict=True) if t is not None]
        reason = refusal(tuple(t for _, t in present), tuple(n for n, _ in present))
        if reason is None:
            raise
        raise NotImplementedError(reason) from error


def _forward(operands: tuple[Any, ...], stacked: bool) -> tuple[Tensor, ...]:
    """The raw op in eager mode, with final states as (1, B, S) if `stacked`."""
    with below_autograd():
        results = _forward_in_c(*operands)
        if stacked and operands[3] is None:
            # In place, since an autograd Function must not return views of its results.
            results[1].unsqueeze_(0)
            results[2].unsqueeze_(0)
    return results  # type: ignore[no-any-return]


def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    with below_autograd():
        return _backward_in_c(*arguments)  # type: ignore[no-any-return]


class _LayerFunction(torch.autograd.Function):
    """A sequence in eager mode: returns ``(output, final_h, final_cell, cells)``.

    As in the cell's Function, the gates are saved for backward but not returned.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Sequence:
        input, weights, bias, h, cell, ctx.reverse, keep_cells, ctx.allow_tf32, stacked = arguments
        output, final_h, final_cell, gates, cells = _forward(arguments[:8], stacked)
        ctx.save_for_backward(input, weights, bias, h, cell, output, gates, cells)
        ctx.set_materialize_grads(False)
        if not keep_cells:
            ctx.mark_non_differentiable(cells)
        return output, final_h, final_cell, cells

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (*_layer_derivatives.gradients(_backward, ctx, grads), None, None, None, None)

    jvp = staticmethod(refuse_forward_mode)


_apply = apply_in_c(_LayerFunction)


def _traceable(tensors: Arguments, reverse: bool, keep_cells: bool, stacked: bool) -> Sequence:
    """`run_sequence` in operations that a compiler or functorch can follow."""
    if is_compiling():
        operands = _operands(tensors, reverse, keep_cells)
        output, final_h, final_cell, _, cells = _forward_op(*operands)
    else:
        output, final_h, final_cell, cells = _layer_derivatives.steps_of_cells(reverse, *tensors)
    if stacked and tensors[3] is None:
        final_h, final_cell = final_h.unsqueeze(0), final_cell.unsqueeze(0)
    return output, final_h, final_cell, cells


def _operands(tensors: Arguments, reverse: bool, keep_cells: bool) -> tuple[Any, ...]:
    """The arguments of the raw op: contiguous tensors, cast by autocast, and the options."""
    input, weights, bias, initial_h, initial_cell = (
        autocast(tensors) if autocast_is_active() else tensors
    )
    return (
        input.contiguous(),
        weights.contiguous(),
        None if bias is None else bias.contiguous(),
        None if initial_h is None else initial_h.contiguous(),
        None if initial_cell is None else initial_cell.contiguous(),
        reverse,
        keep_cells,
        _tf32_allowed(input),
    )


def _tf32_allowed(input: Tensor) -> bool:
    """Whether torch's flag for float32 products allows tf32."""
    if not input.is_cuda or input.dtype is not torch.float32:
        return False
    matmul: Any = torch.backends.cuda.matmul
    if _NEWER_TF32_FLAG:
        return matmul.fp32_precision == "tf32"  # type: ignore[no-any-return]
    return matmul.allow_tf32  # type: ignore[no-any-return]
