"""One direction of an LLTM layer over a whole sequence, as a function.

In eager mode with gradients, on CPU and CUDA devices, `lltm_sequence` does this::

    forward    _LayerFunction.forward -> torch.ops.lltm.layer_forward
    backward   _LayerFunction.backward -> _backward -> torch.ops.lltm.layer_backward

As for the cell (see `functions`), torch asks for derivatives in three ways. Eager mode uses
`_LayerFunction`. Compilers and callers of the raw op use the rules that `register` gives
torch. ``torch.func``, ``torch.vmap`` and forward mode run a loop over the cell, which has
rules for all of them. The raw op's output `gates` is not differentiable, nor is `cells`
without `keep_cells`. The raw backward op computes first derivatives; with
``create_graph=True``, the loop computes all derivatives.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import _flops, _plain
from ._derivatives import (
    NO_GRADIENTS,
    Gradients,
    Op,
    contiguous,
    gradients_through,
    needs_mask,
    select_gradients,
)
from ._fake import fake_layer_backward, fake_layer_forward
from ._plain import steps_of_cells
from ._registration import Rules, batching_rule, mapped_first, register
from ._tensors import CellInputs, LayerResults
from ._torch_private import (
    apply_in_c,
    autocast_is_active,
    below_autograd,
    forward_mode_is_active,
    functorch_is_active,
    has_tangent,
    is_exporting_to_onnx,
    jit_is_tracing,
)
from .functions import autocast, lltm, refuse
from .loader import check_cuda, checked_devices

if TYPE_CHECKING:
    from ._context import Context, LayerContext, VmapInfo

__all__ = ["lltm_sequence", "steps_of_cells"]

LayerTensors = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


def _setup_context(
    ctx: LayerContext,
    inputs: tuple[Any, ...],
    output: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Saves the inputs, the hidden states, the gates and, with `keep_cells`, the cell states."""
    *tensors, ctx.reverse, keep_cells, ctx.allow_tf32 = inputs
    hidden_states, _final_h, _final_cell, gates, cells = output
    ctx.save_for_backward(*tensors, hidden_states, gates, cells)
    if keep_cells:
        ctx.mark_non_differentiable(gates)
    else:
        ctx.mark_non_differentiable(gates, cells)
    ctx.set_materialize_grads(False)


def _backward(
    ctx: LayerContext,
    grad_output: Tensor | None,
    grad_final_h: Tensor | None,
    grad_final_cell: Tensor | None,
    grad_gates: None,
    grad_cells: Tensor | None,
    *,
    op: Op | None = None,
) -> Gradients:
    """Gradients of the raw op's five input tensors, and None for each of its three options.

    The arguments are the gradients of the raw op's results, where None stands for zeros. `op`
    calls the raw backward op with less overhead; None stands for the raw op itself.
    """
    input, weights, bias, initial_h, initial_cell, output, gates, cells = ctx.saved_tensors
    grads = (grad_output, grad_final_h, grad_final_cell, grad_cells)
    options = (None, None, None)
    # With create_graph=True, the gradients may be differentiated again. In forward mode,
    # incoming gradients may have tangents, which the raw op does not know.
    if torch.is_grad_enabled() or forward_mode_is_active():
        steps = partial(steps_of_cells, lltm, reverse=ctx.reverse)
        inputs = (input, weights, bias, initial_h, initial_cell)
        return (*gradients_through(steps, inputs, ctx.needs_input_grad, grads), *options)
    if all(grad is None for grad in grads):
        return (*NO_GRADIENTS, *options)
    needs = needs_mask(ctx.needs_input_grad)
    call = op or torch.ops.lltm.layer_backward.default
    results = call(
        contiguous(grad_output),
        contiguous(grad_final_h),
        contiguous(grad_final_cell),
        contiguous(grad_cells),
        # Hooks on saved tensors may have given them other strides.
        input.contiguous(),
        weights.contiguous(),
        contiguous(bias),
        contiguous(initial_h),
        contiguous(initial_cell),
        output.contiguous(),
        gates.contiguous(),
        cells.contiguous(),
        needs,
        ctx.reverse,
        ctx.allow_tf32,
    )
    return (*select_gradients(results, needs), *options)


def _refuse_backward_of_backward(ctx: Context, *grads: Tensor | None) -> Gradients:
    """Refuses to differentiate the raw backward op: its inputs do not determine the derivative."""
    raise NotImplementedError(
        "lltm: torch.ops.lltm.layer_backward has no derivative of its own; differentiate "
        "torch.ops.lltm.layer_forward or LLTMLayer with create_graph=True instead"
    )


def _step(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor]:
    new_h, new_cell, _gates = torch.ops.lltm.forward.default(
        input.contiguous(),
        weights.contiguous(),
        bias.contiguous(),
        old_h.contiguous(),
        old_cell.contiguous(),
    )
    return new_h, new_cell


def _steps(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool,
    keep_cells: bool,
    allow_tf32: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """``torch.ops.lltm.layer_forward`` as a loop over ``torch.ops.lltm.forward``.

    ``torch.func`` and ``torch.vmap`` of the raw op run it: the cell has rules for both.
    """
    tensors = (input, weights, bias, initial_h, initial_cell)
    return _plain.with_gates(
        steps_of_cells(_step, *tensors, reverse=reverse),
        input,
        weights,
        bias,
        initial_h,
        reverse=reverse,
        keep_cells=keep_cells,
    )


register(
    "layer_forward",
    Rules(
        fake=fake_layer_forward,
        plain=_plain.layer_forward,
        setup_context=_setup_context,
        backward=_backward,
        under_transforms=_steps,
    ),
)
register(
    "layer_backward",
    Rules(
        fake=fake_layer_backward,
        plain=_plain.layer_backward,
        setup_context=None,
        backward=_refuse_backward_of_backward,
    ),
)
_flops.register()
_forward_op = torch.ops.lltm.layer_forward.default
_eager_forward = below_autograd(_forward_op)
_eager_backward = below_autograd(torch.ops.lltm.layer_backward.default)


def _forward_under_vmap(
    info: VmapInfo,
    in_dims: tuple[int | None, ...],
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool,
    keep_cells: bool,
    allow_tf32: bool,
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """``torch.ops.lltm.layer_forward`` under ``torch.vmap``, as a loop over the rule of the cell.

    Torch gives the arguments. Returns the results and their mapped dimensions.
    """
    lanes = info.batch_size
    x = mapped_first(input, in_dims[0], lanes).transpose(0, 1)  # (T, lanes, B, I)
    rows = mapped_first(weights, in_dims[1], lanes).shape[1]
    if bias is None:
        bias = weights.new_zeros(rows)
    zeros = x.new_zeros(lanes, x.shape[2], rows // 3)
    h_n = zeros if initial_h is None else mapped_first(initial_h, in_dims[3], lanes)
    c_n = zeros if initial_cell is None else mapped_first(initial_cell, in_dims[4], lanes)
    h = h_n.reshape(zeros.shape)
    cell = c_n.reshape(zeros.shape)
    steps = []
    order = -1 if reverse else 1
    for step in x.unbind(0)[::order]:
        inputs = CellInputs(step, weights, bias, h, cell)
        results, _ = batching_rule(
            torch.ops.lltm.forward.default, info, (0, *in_dims[1:3], 0, 0), inputs
        )
        h, cell, _gates = results
        steps.append(results)
    output, cells, gates = (
        torch.stack(tensors, dim=1) for tensors in zip(*steps[::order], strict=True)
    )
    if not keep_cells:
        cells = x.new_empty(lanes, 0)
    results_of_layer = (output, h.reshape(h_n.shape), cell.reshape(c_n.shape), gates, cells)
    return results_of_layer, (0,) * len(results_of_layer)


# As for the cell, torch 2.5 has no register_vmap that works.
if torch.__version__ >= "2.6":  # compares versions, not text: "2.10" is newer
    torch.library.register_vmap("lltm::layer_forward", _forward_under_vmap)

# From torch 2.9 on, reading `allow_tf32` raises an error if `fp32_precision` was set. The
# next line compares versions, not text: "2.10" is newer than "2.9".
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
) -> LayerResults:
    """Runs the LLTM cell over a sequence in one op, instead of a loop over :func:`lltm_conda.lltm`.

    The function copies non-contiguous arguments, and under ``torch.autocast`` casts all
    arguments except float64 ones to the autocast dtype. Under ``torch.func`` and
    ``torch.vmap``, a loop over the cell runs instead of the op, always keeps the cell states,
    and has the same results up to rounding. In 16 bits, the loop is less exact, because it
    rounds the cell state at every step.

    Args:
        input: ``(T, B, I)``, T >= 1; float32, float64, float16 or bfloat16, on the CPU or a
            CUDA device. All other arguments have its dtype and device.
        weights: ``(3S, S + I)``; the columns of ``h`` come first, the rows in the order i, o, c.
        bias: ``(3S,)`` or ``(1, 3S)``; None for a cell without a bias.
        initial_h: ``(B, S)`` or ``(1, B, S)``, the hidden state before the first step; zeros
            when None.
        initial_cell: the cell state before the first step, like `initial_h`.
        reverse: start at the last step and go back to the first.
        keep_cells: keep the cell states of all steps for backward. If False, backward
            computes them again.

    Returns:
        ``(output, final_h, final_cell, cells)``. `output` ``(T, B, S)`` is the hidden state
        of every step. `final_h` and `final_cell` are the states after the last computed step,
        in the shape of the initial states, or ``(B, S)`` if these are None. `cells`
        ``(T, B, S)`` is the cell state of every step, or empty without `keep_cells`. All are
        differentiable in any order and mode, except an empty `cells`; a loop over the cell
        computes all but the first derivatives in reverse mode.

    Raises:
        RuntimeError: an argument has a wrong shape, dtype or device; the text names the argument.
        NotImplementedError: in the cases that :func:`lltm_conda.lltm` lists.
    """
    tensors = (input, weights, bias, initial_h, initial_cell)
    if is_compiling() or jit_is_tracing():
        if is_exporting_to_onnx():
            return _plain.steps_by_scan(*autocast(tensors), reverse=reverse)
        return _without_gates(_forward_op(*_operands(tensors, reverse, keep_cells)))
    try:
        if input.is_cuda and input.get_device() not in checked_devices:
            check_cuda(input.device)
        if functorch_is_active() or (forward_mode_is_active() and has_tangent(tensors)):
            return steps_of_cells(lltm, *tensors, reverse=reverse)
        operands = _operands(tensors, reverse, keep_cells)
        if torch.is_grad_enabled():
            return LayerResults(*_apply(*operands))
        return _without_gates(_eager_forward(*operands))
    except (RuntimeError, AttributeError, TypeError) as error:
        named = zip(_NAMES, tensors, strict=True)
        refuse(error, **{name: tensor for name, tensor in named if tensor is not None})
        raise


def _without_gates(results: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]) -> LayerResults:
    output, final_h, final_cell, _gates, cells = results
    return LayerResults(output, final_h, final_cell, cells)


class _LayerFunction(torch.autograd.Function):
    """`lltm_sequence` in eager mode. As in `LLTMFunction`, the gates are saved, not returned."""

    @staticmethod
    def forward(
        ctx: LayerContext,
        input: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        initial_h: Tensor | None,
        initial_cell: Tensor | None,
        reverse: bool,
        keep_cells: bool,
        allow_tf32: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        inputs = (
            input,
            weights,
            bias,
            initial_h,
            initial_cell,
            reverse,
            keep_cells,
            allow_tf32,
        )
        results = _eager_forward(*inputs)
        _setup_context(ctx, inputs, results)
        output, final_h, final_cell, _gates, cells = results
        return output, final_h, final_cell, cells

    @staticmethod
    def backward(
        ctx: LayerContext,
        grad_output: Tensor | None,
        grad_final_h: Tensor | None,
        grad_final_cell: Tensor | None,
        grad_cells: Tensor | None,
    ) -> Gradients:
        return _backward(
            ctx, grad_output, grad_final_h, grad_final_cell, None, grad_cells, op=_eager_backward
        )


_apply = apply_in_c(_LayerFunction)


def _operands(tensors: LayerTensors, reverse: bool, keep_cells: bool) -> tuple[Any, ...]:
    """The arguments of the raw op: contiguous tensors, cast under autocast, and three options."""
    if autocast_is_active():
        tensors = autocast(tensors)
    input, weights, bias, initial_h, initial_cell = tensors
    return (
        input.contiguous(),
        weights.contiguous(),
        contiguous(bias),
        contiguous(initial_h),
        contiguous(initial_cell),
        reverse,
        keep_cells,
        _tf32_allowed(input),
    )


def _tf32_allowed(input: Tensor) -> bool:
    """Whether torch's setting for float32 products allows tf32 for this input."""
    if not input.is_cuda or input.dtype is not torch.float32:
        return False
    matmul: Any = torch.backends.cuda.matmul
    return bool(matmul.fp32_precision == "tf32" if _NEWER_TF32_FLAG else matmul.allow_tf32)
