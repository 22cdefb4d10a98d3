"""The LLTM cell as a function, `lltm`, and the autograd Functions beneath it.

What `lltm` does, on both devices::

    forward    lltm -> _EagerLLTMFunction.forward -> torch.ops.lltm.forward
    backward   _EagerLLTMFunction.backward -> torch.ops.lltm.backward

The raw ops are C++ (``csrc/ops/operators.h`` lists them). They check their arguments, ask the plan
of the device's kernels (``csrc/kernels``) what is quickest for these sizes, allocate the results,
and call either the kernels for a whole step or torch's GEMM and one pointwise kernel.

Four things can stand between a caller and the raw ops, because torch has four ways to ask for
derivatives. All have the same derivatives, those of `_derivatives`:

* `_EagerLLTMFunction`: eager mode. Its form, with ``ctx`` in ``forward``, is the quickest: half the
  time of the next one for a tiny step.
* `FunctorchLLTMFunction`: ``torch.func`` and ``torch.vmap``, which take no other form than
  ``setup_context`` and a rule for ``vmap``.
* What `register` tells torch about the raw op itself: ``torch.compile``, ``torch.export``, and
  callers of ``torch.ops.lltm.forward``. There is no Function then; a compiler sees one operator.
* `LLTMFunction`, the tutorial's name: its ``apply`` is `lltm`, but ``torch.compile`` traces its
  ``forward`` and ``backward`` instead, and needs them without private calls.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import _derivatives
from ._fake import fake_backward, fake_forward
from ._refusals import refusal
from ._registration import batching_rule, register
from ._torch_private import (
    apply_in_c,
    below_autograd,
    functorch_is_active,
    is_forward_over_reverse,
)
from .loader import check_cuda
from .reference import reference

__all__ = ["FunctorchLLTMFunction", "LLTMFunction", "lltm"]

register("forward", fake_forward, _derivatives.backward, _derivatives.setup_context)
register(
    "backward",
    fake_backward,
    _derivatives.backward_of_backward,
    _derivatives.setup_context_of_backward,
)
_forward_op = torch.ops.lltm.forward.default
_eager_forward = below_autograd(_forward_op)
_eager_backward = below_autograd(torch.ops.lltm.backward.default)


def refuse_forward_mode(ctx: Any, *grad_inputs: Any) -> Any:
    """The ``jvp`` of every Function here."""
    raise NotImplementedError(
        "lltm: forward-mode automatic differentiation (jvp) is not implemented; use reverse "
        "mode (torch.func.vjp, jacrev, grad), or lltm_conda.reference, which has both"
    )


# What the graph keeps: up to this many multiplications in a step's product, a GPU makes the gates
# again in backward. They are three fifths of what a training loop would keep, and a step of this
# size makes them in less than a microsecond.
_MADE_AGAIN = 2_000_000


def lltm(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of the LLTM cell: :func:`lltm_conda.reference`, compiled.

    Non-contiguous arguments are copied. Under ``torch.autocast`` arguments are cast to its dtype.

    Args:
        input: ``(B, I)``; float32, float64, float16 or bfloat16, on the CPU or a CUDA device. All
            other arguments have its dtype and device.
        weights: ``(3S, S + I)``; the columns of ``h`` come first, the rows in the order i, o, c.
        bias: ``(3S,)`` or ``(1, 3S)``.
        old_h: ``(B, S)``, the previous hidden state.
        old_cell: ``(B, S)``, the previous cell state.

    Returns:
        ``(new_h, new_cell)``, each ``(B, S)``; differentiable to any order in reverse mode.

    Raises:
        RuntimeError: an argument has a wrong shape, dtype or device; the text names it.
        NotImplementedError: forward-mode differentiation, or a layout or device that has no kernel
            (sparse, quantised, MPS, XPU, ...); :func:`lltm_conda.reference` may serve there.
    """
    if torch.compiler.is_compiling():
        tensors = autocast((input, weights, bias, old_h, old_cell))
        new_h, new_cell, _ = _forward_op(*(tensor.contiguous() for tensor in tensors))
        return new_h, new_cell
    try:
        on_cuda = input.is_cuda
        if on_cuda:
            check_cuda(input.device)
        if functorch_is_active():
            return _under_functorch(input, weights, bias, old_h, old_cell)
        if torch.is_autocast_enabled("cuda" if on_cuda else "cpu"):
            tensors = (input, weights, bias, old_h, old_cell)
            input, weights, bias, old_h, old_cell = autocast(tensors)
        return _apply(  # type: ignore[no-any-return]
            input.contiguous(),
            weights.contiguous(),
            bias.contiguous(),
            old_h.contiguous(),
            old_cell.contiguous(),
        )
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = refusal((input, weights, bias, old_h, old_cell))
        if reason is None:
            raise
        raise NotImplementedError(reason) from error


class LLTMFunction(torch.autograd.Function):
    """The tutorial's autograd Function: ``LLTMFunction.apply(...) -> (new_h, new_cell)``.

    ``apply`` takes and returns what :func:`lltm` does. ``torch.compile`` does not look at it: it
    traces ``forward`` and ``backward``.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        # Not tensor.contiguous(): torch 2.4's dynamo would give its results the names of the
        # same calls in backward, and hand backward the wrong tensors.
        contiguous = torch.ops.aten.contiguous.default
        inputs = tuple(contiguous(tensor) for tensor in (input, weights, bias, old_h, old_cell))
        output = _forward_op(*inputs)
        _derivatives.setup_context(ctx, inputs, output)
        return output[0], output[1]

    @staticmethod
    def backward(
        ctx: Any, grad_h: Tensor | None, grad_cell: Tensor | None
    ) -> _derivatives.Gradients:
        return _derivatives.backward(ctx, grad_h, grad_cell, None)

    apply = staticmethod(lltm)


class _EagerLLTMFunction(torch.autograd.Function):
    """What `lltm` applies in eager mode: returns ``(new_h, new_cell)``.

    The gates are kept for backward but are no output: torch would wrap an output at every step.
    The price: no graph leads to them, so second derivatives make them again.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        new_h, new_cell, gates = _eager_forward(input, weights, bias, old_h, old_cell)
        if input.is_cuda and new_h.numel() * 3 * weights.size(1) <= _MADE_AGAIN:
            gates = None
        ctx.save_for_backward(input, weights, bias, old_h, new_cell, gates)
        ctx.set_materialize_grads(False)
        return new_h, new_cell

    @staticmethod
    def backward(
        ctx: Any, grad_h: Tensor | None, grad_cell: Tensor | None
    ) -> _derivatives.Gradients:
        saved, wanted = ctx.saved_tensors, ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph=True: these will be differentiated again
            return _derivatives.differentiable(
                (grad_h, grad_cell, None), (*saved[:5], None), wanted
            )
        if not saved[0].is_cuda:
            grad_h = _derivatives.contiguous(grad_h)
            grad_cell = _derivatives.contiguous(grad_cell)
        return _derivatives.by_kernels(_eager_backward, (grad_h, grad_cell, None), saved, wanted)

    jvp = staticmethod(refuse_forward_mode)


_apply = apply_in_c(_EagerLLTMFunction)


class FunctorchLLTMFunction(torch.autograd.Function):
    """The cell for ``torch.func`` and ``torch.vmap``: returns ``(new_h, new_cell, gates)``."""

    @staticmethod
    def forward(
        input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _forward_op(input, weights, bias, old_h, old_cell)  # type: ignore[no-any-return]

    setup_context = staticmethod(_derivatives.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> _derivatives.Gradients:
        # A gradient may itself be mapped or differentiated here: the raw op's cannot be.
        return _derivatives.differentiable(grads, ctx.saved_tensors, ctx.needs_input_grad)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> Any:
        return batching_rule(FunctorchLLTMFunction.apply, info, in_dims, *inputs)

    jvp = staticmethod(refuse_forward_mode)


# Torch 2.5 has register_vmap too, but asserts in its own code when maps are nested, compiled or
# differentiated. Without it torch calls the op once for each element of the map.
if torch.__version__ >= "2.6":  # a version, not text: "2.10" is newer
    torch.library.register_vmap("lltm::forward", partial(batching_rule, _forward_op))


def _under_functorch(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    if is_forward_over_reverse():
        # No kernel has a forward-mode rule, but every operation of the definition has.
        return reference(*tensors)
    tensors = tuple(tensor.contiguous() for tensor in autocast(tensors))
    new_h, new_cell, _ = FunctorchLLTMFunction.apply(*tensors)  # type: ignore[no-untyped-call]
    return new_h, new_cell


def autocast(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Casts as autocast casts a linear layer: everything but float64 to the autocast dtype."""
    device_type = tensors[0].device.type
    if device_type not in ("cpu", "cuda") or not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(
        tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor
        for tensor in tensors
    )
