"""One direction of an LLTM layer over a whole sequence, as a function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _layer_derivatives
from ._layer_fake import fake_layer_backward, fake_layer_forward
from ._refusals import refusal
from .functions import FunctorchLLTMFunction, _autocast
from .loader import check_cuda

__all__ = ["lltm_sequence", "run_sequence"]

Sequence = tuple[Tensor, Tensor, Tensor, Tensor]
Arguments = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


def _register() -> None:
    library = torch.library
    library.register_fake("lltm::layer_forward", fake_layer_forward)
    library.register_fake("lltm::layer_backward", fake_layer_backward)
    library.register_autograd(
        "lltm::layer_forward",
        _layer_derivatives.backward,
        setup_context=_layer_derivatives.setup_context,
    )
    library.register_autograd(
        "lltm::layer_backward", _layer_derivatives.refuse_backward_of_backward
    )


_register()

_forward_op = torch.ops.lltm.layer_forward.default
# Looked up once: on a GPU a short sequence takes about as long as a few such look-ups.
_forward_call = _forward_op._op
_backward_call = torch.ops.lltm.layer_backward.default._op
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
# Where asking the older flag raises once the newer was set. A version, not text.
_NEWER_TF32_FLAG = torch.__version__ >= "2.9"
_functorch_active = torch._C._are_functorch_transforms_active
_below_autograd = torch._C._AutoDispatchBelowAutograd
_forward_mode: Any = torch.autograd.forward_ad
_NAMES = ("input", "weights", "bias", "initial_h", "initial_cell")


class _EagerLayerFunction(torch.autograd.Function):
    """A sequence for eager mode: returns ``(output, final_h, final_cell, cells)``.

    The gates are kept, but are no output: torch would wrap them like one.
    """

    @staticmethod
    def forward(  # each by its name: unpacking is felt in a short sequence
        ctx: Any,
        input: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        h: Tensor | None,
        cell: Tensor | None,
        reverse: bool,
        keep_cells: bool,
        allow_tf32: bool,
        stacked: bool,
    ) -> Sequence:
        # This Function is the autograd, of the views as well: nothing below it asks again.
        with _below_autograd():
            output, final_h, final_cell, gates, cells = _forward_call(
                input, weights, bias, h, cell, reverse, keep_cells, allow_tf32
            )
            if stacked and h is None:
                _stack(final_h, final_cell)
        ctx.reverse, ctx.allow_tf32 = reverse, allow_tf32
        ctx.save_for_backward(input, weights, bias, h, cell, output, gates, cells)
        ctx.set_materialize_grads(False)
        if not keep_cells:
            ctx.mark_non_differentiable(cells)
        return output, final_h, final_cell, cells

    @staticmethod
    def backward(
        ctx: Any,
        grad_output: Tensor | None,
        grad_final_h: Tensor | None,
        grad_final_cell: Tensor | None,
        grad_cells: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        gradients = _layer_derivatives.gradients(
            _backward_below_autograd,
            ctx,
            ctx.saved_tensors,
            (grad_output, grad_final_h, grad_final_cell, grad_cells),
        )
        return (*gradients, None, None, None, None)

    jvp = FunctorchLLTMFunction.jvp


def _stack(final_h: Tensor, final_cell: Tensor) -> None:
    """Makes (1, B, S) of final states without initial ones."""
    # No views: whoever holds one made below autograd may not change it in place.
    final_h.unsqueeze_(0)
    final_cell.unsqueeze_(0)


def _backward_below_autograd(*arguments: Any) -> tuple[Tensor, ...]:
    with _below_autograd():  # nobody differentiates here: that takes the loop over the cell
        return _backward_call(*arguments)  # type: ignore[no-any-return]


# Without functorch, Function.apply only looks for wrappers that functorch left behind.
_eager: Any = super(torch.autograd.Function, _EagerLayerFunction).apply


def _tf32_allowed(input: Tensor) -> bool:
    """What torch's flag for products of float32 says."""
    if not input.is_cuda or input.dtype is not torch.float32:
        return False
    matmul: Any = torch.backends.cuda.matmul
    if _NEWER_TF32_FLAG:
        return matmul.fp32_precision == "tf32"  # type: ignore[no-any-return]
    return matmul.allow_tf32  # type: ignore[no-any-return]


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
    Under ``torch.func`` and ``torch.vmap`` it is that loop; its results are the same to rounding,
    and in 16 bits, in which it rounds the cell at every step, further from float64.

    Args:
        input: ``(T, B, I)``, T >= 1; float32, float64, float16 or bfloat16, on the CPU or a CUDA
            device. All other arguments have its dtype and device.
        weights: ``(3S, S + I)``; the columns of ``h`` come first, the rows in the order i, o, c.
        bias: ``(3S,)`` or ``(1, 3S)``; none when None.
        initial_h: ``(B, S)`` or ``(1, B, S)``, the hidden state before the first step; zeros when
            None.
        initial_cell: likewise, the cell state before the first step.
        reverse: start at the last step and go back to the first.
        keep_cells: keep the cell state of every step for backward, rather than compute them again
            from what is kept anyway.

    Returns:
        ``(output, final_h, final_cell, cells)``: the hidden state of every step ``(T, B, S)``, both
        states after the last step, shaped like the initial ones or ``(B, S)``, and the cell state
        of every step ``(T, B, S)``, which without `keep_cells` has no elements. Differentiable to
        any order in reverse mode; orders beyond the first go step by step.

    Raises:
        RuntimeError: an argument has a wrong shape, dtype or device; the text names it.
        NotImplementedError: forward-mode differentiation, or a layout or device without kernels.
    """
    return run_sequence(
        input, weights, bias, initial_h, initial_cell, reverse, keep_cells, stacked=False
    )


def run_sequence(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool,
    keep_cells: bool,
    stacked: bool,
) -> Sequence:
    """`lltm_sequence`; if `stacked`, states are (1, B, S), as a module of one layer has them.

    Both initial states are there then, or neither.
    """
    tensors: Arguments = (input, weights, bias, initial_h, initial_cell)
    if torch.compiler.is_compiling():
        return _in_operations(tensors, reverse, keep_cells, stacked)
    try:
        if input.is_cuda:
            check_cuda(input.device)
        if _functorch_active():
            return _in_operations(tensors, reverse, keep_cells, stacked)
        if _any_autocast():
            tensors = _cast(tensors)
        recorded = torch.is_grad_enabled() or _forward_mode._current_level >= 0
        call = _eager if recorded else _without_graph
        return call(*_arguments(tensors, reverse, keep_cells), stacked)
    except (RuntimeError, AttributeError, TypeError) as error:
        present = [(n, t) for n, t in zip(_NAMES, tensors, strict=True) if t is not None]
        reason = refusal(tuple(t for _, t in present), tuple(n for n, _ in present))
        if reason is None:
            raise
        raise NotImplementedError(reason) from error


def _without_graph(*arguments: Any) -> Sequence:
    """What `_eager` returns where nothing is recorded."""
    *operands, stacked = arguments
    with _below_autograd():
        output, final_h, final_cell, _gates, cells = _forward_call(*operands)
        if stacked and operands[3] is None:
            _stack(final_h, final_cell)
    return output, final_h, final_cell, cells


def _in_operations(tensors: Arguments, reverse: bool, keep_cells: bool, stacked: bool) -> Sequence:
    """The same in operations that a tracer or functorch sees: the op, or the loop over the cell."""
    if torch.compiler.is_compiling():
        arguments = _arguments(_cast(tensors), reverse, keep_cells)
        output, final_h, final_cell, _gates, cells = _forward_op(*arguments)
    else:
        output, final_h, final_cell, cells = _layer_derivatives.steps_of_cells(*tensors, reverse)
    if stacked and tensors[3] is None:
        final_h, final_cell = final_h.unsqueeze(0), final_cell.unsqueeze(0)
    return output, final_h, final_cell, cells


def _cast(tensors: Arguments) -> Arguments:
    """What autocast makes of them."""
    cast = iter(_autocast(tuple(tensor for tensor in tensors if tensor is not None)))
    return tuple(None if tensor is None else next(cast) for tensor in tensors)  # type: ignore[return-value]


def _arguments(tensors: Arguments, reverse: bool, keep_cells: bool) -> tuple[Any, ...]:
    """What the raw op takes: contiguous, and with the options."""
    input, weights, bias, initial_h, initial_cell = tensors
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
