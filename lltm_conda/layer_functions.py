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

__all__ = ["lltm_sequence"]


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
_functorch_active = torch._C._are_functorch_transforms_active
_below_autograd = torch._C._AutoDispatchBelowAutograd
_NAMES = ("input", "weights", "bias", "initial_h", "initial_cell")


class _EagerLayerFunction(torch.autograd.Function):
    """The raw op's signature and results, quicker in eager mode than the op's own autograd."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        with _below_autograd():
            output = _forward_op(*inputs)
        _layer_derivatives.setup_context(ctx, inputs, output)
        return output  # type: ignore[no-any-return]

    backward = staticmethod(_layer_derivatives.backward)
    jvp = FunctorchLLTMFunction.jvp


def _tf32_allowed(input: Tensor) -> bool:
    """What torch's flag for products of float32 says."""
    if input.dtype != torch.float32 or input.device.type != "cuda":
        return False
    matmul: Any = torch.backends.cuda.matmul
    if torch.__version__ >= "2.9":  # where asking the older flag raises once the newer was set
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Runs the LLTM cell over a sequence: a loop over :func:`lltm_conda.lltm`, in one op.

    Non-contiguous arguments are copied. Under ``torch.autocast`` arguments are cast to its dtype.
    Under ``torch.func`` and ``torch.vmap`` it is that loop; its results are the same.

    Args:
        input: ``(T, B, I)``, T >= 1; float32, float64, float16 or bfloat16, on the CPU or a CUDA
            device. All other arguments have its dtype and device.
        weights: ``(3S, S + I)``; the columns of ``h`` come first, the rows in the order i, o, c.
        bias: ``(3S,)`` or ``(1, 3S)``; none when None.
        initial_h: ``(B, S)``, the hidden state before the first step; zeros when None.
        initial_cell: ``(B, S)``, the cell state before the first step; zeros when None.
        reverse: start at the last step and go back to the first.
        keep_cells: keep the cell state of every step for backward, rather than compute them again
            from what is kept anyway.

    Returns:
        ``(output, final_h, final_cell, cells)``: the hidden state of every step ``(T, B, S)``, both
        states after the last step ``(B, S)``, and the cell state of every step ``(T, B, S)``, which
        without `keep_cells` has no elements. Differentiable to any order in reverse mode; orders
        beyond the first go step by step.

    Raises:
        RuntimeError: an argument has a wrong shape, dtype or device; the text names it.
        NotImplementedError: forward-mode differentiation, or a layout or device without kernels.
    """
    tensors = (input, weights, bias, initial_h, initial_cell)
    if torch.compiler.is_compiling():
        return _results(_forward_op(*_arguments(tensors, reverse, keep_cells)))
    if _functorch_active():
        return _layer_derivatives.steps_of_cells(*tensors, reverse)
    try:
        if input.is_cuda:
            check_cuda(input.device)
        function: Any = _EagerLayerFunction
        return _results(function.apply(*_arguments(tensors, reverse, keep_cells)))
    except (RuntimeError, AttributeError) as error:
        present = [(n, t) for n, t in zip(_NAMES, tensors, strict=True) if t is not None]
        reason = refusal(tuple(t for _, t in present), tuple(n for n, _ in present))
        if reason is None:
            raise
        raise NotImplementedError(reason) from error


def _arguments(
    tensors: tuple[Tensor | None, ...], reverse: bool, keep_cells: bool
) -> tuple[Any, ...]:
    """What the raw op takes: cast by autocast, contiguous, and with the options."""
    cast = _autocast(tuple(tensor for tensor in tensors if tensor is not None))
    rest = iter(cast)
    ready = (None if tensor is None else next(rest).contiguous() for tensor in tensors)
    return (*ready, reverse, keep_cells, _tf32_allowed(cast[0]))


def _results(output: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    states, final_h, final_cell, _gates, cells = output
    return states, final_h, final_cell, cells
