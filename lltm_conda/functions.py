"""The LLTM cell as a function, `lltm`, and the autograd Functions beneath it.

In eager mode, on CPU and CUDA devices, `lltm` does this (the other modes are below)::

    forward    lltm -> LLTMFunction.forward -> torch.ops.lltm.forward
    backward   LLTMFunction.backward -> torch.ops.lltm.backward

These raw ops are C++ (``csrc/ops/register.cpp`` lists them). They check their arguments, ask
the device's kernels (``csrc/kernels``) for the fastest way to compute a step of these sizes,
allocate the results, and call either kernels that compute a whole step, or both torch's GEMM
and kernels.

Torch has three ways to ask for derivatives, so there are three ways from a caller to the raw
ops. All three use the derivatives of `_derivatives`:

* `LLTMFunction` serves eager mode. Its ``forward`` takes ``ctx``: with a ``setup_context``, a
  tiny step would take twice the time. Its ``apply`` is `lltm`. For a call of ``apply``,
  ``torch.compile`` does not run `lltm`, but traces ``forward`` and ``backward``.
* The rules that `register` gives torch for the raw ops serve callers of
  ``torch.ops.lltm.forward``, and ``torch.compile``, ``torch.export``, ``torch.jit.trace`` and
  ``torch.func``, for which `lltm` is one operator.
* `FunctorchLLTMFunction` serves ``torch.func`` and ``torch.vmap`` before torch 2.6, where the
  raw op has no rule for ``vmap``.

In forward mode, where a tangent is present, all of them run `reference`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import _derivatives, _plain
from ._arguments import complex_advice, unsupported
from ._fake import fake_backward, fake_forward
from ._registration import BatchedCell, Rules, batching_rule, register
from ._tensors import CellGradients, CellInputs, SavedCell
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
from .loader import check_cuda, checked_devices
from .reference import reference

if TYPE_CHECKING:
    from ._context import Context, VmapInfo

__all__ = ["FunctorchLLTMFunction", "LLTMFunction", "lltm"]

register(
    "forward",
    Rules(
        fake=fake_forward,
        plain=_plain.forward,
        setup_context=_derivatives.setup_context,
        backward=_derivatives.backward,
    ),
)
register(
    "backward",
    Rules(
        fake=fake_backward,
        plain=_plain.backward,
        setup_context=_derivatives.save_backward_inputs,
        backward=_derivatives.backward_of_backward,
    ),
)
_forward_op = torch.ops.lltm.forward.default
_eager_forward = below_autograd(_forward_op)
_eager_backward = below_autograd(torch.ops.lltm.backward.default)


# On a GPU in eager mode, a step with at most this many multiplications does not save the
# gates, and backward recomputes them in less than a microsecond. The gates are three fifths
# of the elements that a step returns (new_h, new_cell, gates). If the kernels of the backward
# pass cannot recompute the gates, the raw backward op runs forward again; asking the kernels
# here would take one more operator call per step.
_MOST_WORK_TO_RECOMPUTE = 2_000_000


def lltm(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of the LLTM cell, as :func:`lltm_conda.reference` defines it, by compiled kernels.

    The function copies non-contiguous arguments, and under ``torch.autocast`` casts all
    arguments except float64 ones to the autocast dtype.

    Args:
        input: ``(B, I)``; float32, float64, float16 or bfloat16, on the CPU or a CUDA device.
            All other arguments have its dtype and device.
        weights: ``(3S, S + I)``; the columns of ``h`` come first, the rows in the order i, o, c.
        bias: ``(3S,)`` or ``(1, 3S)``.
        old_h: ``(B, S)``, the previous hidden state.
        old_cell: ``(B, S)``, the previous cell state.

    Returns:
        ``(new_h, new_cell)``, each ``(B, S)``; differentiable to any order. In forward
        mode, `reference` runs instead of the kernels.

    Raises:
        RuntimeError: an argument has a wrong shape, dtype or device; the text names the argument.
        NotImplementedError: no kernel supports an argument (sparse, quantized, on MPS, ...);
            `reference` may support it.
    """
    if is_compiling() or jit_is_tracing():
        inputs = CellInputs(input, weights, bias, old_h, old_cell)
        return reference(*autocast(inputs)) if is_exporting_to_onnx() else _by_raw_op(inputs)
    try:
        if input.is_cuda and input.get_device() not in checked_devices:
            check_cuda(input.device)
        if functorch_is_active() or forward_mode_is_active():
            return _under_transforms(CellInputs(input, weights, bias, old_h, old_cell))
        if autocast_is_active():
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
        refuse(error, input=input, weights=weights, bias=bias, old_h=old_h, old_cell=old_cell)
        raise


def refuse(error: Exception, **tensors: Tensor) -> None:
    """Raises an error that names an argument which no kernel supports, if there is one.

    It is a NotImplementedError for a type, layout or device, a RuntimeError for complex numbers.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            reason = (
                f"lltm: {name} must be a torch.Tensor, got {type(tensor).__name__}; "
                f"convert it with torch.as_tensor({name})"
            )
        elif (kind := unsupported(name, tensor)) is not None:
            reason = kind
        elif tensor.is_complex():
            raise RuntimeError(
                f"lltm: {name} must be float32, float64, float16 or bfloat16, got {tensor.dtype}; "
                f"{complex_advice(name)}"
            ) from error
        else:
            continue
        raise NotImplementedError(reason) from error


class LLTMFunction(torch.autograd.Function):
    """The tutorial's autograd Function: ``LLTMFunction.apply(...) -> (new_h, new_cell)``.

    ``apply`` is :func:`lltm`. ``forward`` does not return the gates, because torch would wrap
    one more output at every step; it saves them for backward, except after small steps on a GPU.
    """

    @staticmethod
    def forward(
        ctx: Context,
        input: Tensor,
        weights: Tensor,
        bias: Tensor,
        old_h: Tensor,
        old_cell: Tensor,
    ) -> tuple[Tensor, Tensor]:
        if is_compiling():
            # With tensor.contiguous() here and in backward, torch 2.4's dynamo would use the
            # same names for the results of both, and pass wrong tensors to backward.
            contiguous = torch.ops.aten.contiguous.default
            inputs = (
                contiguous(input),
                contiguous(weights),
                contiguous(bias),
                contiguous(old_h),
                contiguous(old_cell),
            )
            output = _forward_op(*inputs)
            _derivatives.setup_context(ctx, inputs, output)
            return output[0], output[1]
        new_h, new_cell, gates = _eager_forward(input, weights, bias, old_h, old_cell)
        if input.is_cuda and new_h.numel() * 3 * weights.size(1) <= _MOST_WORK_TO_RECOMPUTE:
            gates = None
        ctx.save_for_backward(input, weights, bias, old_h, new_cell, gates)
        ctx.set_materialize_grads(False)
        return new_h, new_cell

    @staticmethod
    def backward(
        ctx: Context, grad_h: Tensor | None, grad_cell: Tensor | None
    ) -> _derivatives.Gradients:
        op = None if is_compiling() else _eager_backward
        return _derivatives.backward(ctx, grad_h, grad_cell, None, op=op)

    apply = staticmethod(lltm)


_apply = apply_in_c(LLTMFunction)


class FunctorchLLTMFunction(torch.autograd.Function):
    """The cell under ``torch.func`` before torch 2.6; returns ``(new_h, new_cell, gates)``."""

    @staticmethod
    def forward(
        input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        results: tuple[Tensor, Tensor, Tensor] = _forward_op(input, weights, bias, old_h, old_cell)
        return results

    setup_context = staticmethod(_derivatives.setup_context)

    @staticmethod
    def backward(
        ctx: Context, grad_h: Tensor | None, grad_cell: Tensor | None, grad_gates: Tensor | None
    ) -> _derivatives.Gradients:
        # Under functorch a gradient may be mapped or differentiated again. PyTorch's own
        # operations have rules for both.
        grads = CellGradients(grad_h, grad_cell, grad_gates)
        saved = SavedCell(*ctx.saved_tensors)
        return _derivatives.differentiable(grads, saved, ctx.needs_input_grad)

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *inputs: Tensor) -> BatchedCell:
        apply = FunctorchLLTMFunction.apply
        return batching_rule(apply, info, in_dims, CellInputs(*inputs))


# Torch 2.5 has register_vmap, too, but its own assertions fail when maps are nested, compiled
# or differentiated. Without a rule, torch calls the op once for each element of the mapped
# dimension. The next line compares versions, not text: "2.10" is newer.
_RAW_OP_HAS_VMAP = torch.__version__ >= "2.6"
if _RAW_OP_HAS_VMAP:

    def _forward_under_vmap(
        info: VmapInfo, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> BatchedCell:
        return batching_rule(_forward_op, info, in_dims, CellInputs(*inputs))

    torch.library.register_vmap("lltm::forward", _forward_under_vmap)


def _under_transforms(inputs: CellInputs) -> tuple[Tensor, Tensor]:
    """`lltm` under ``torch.func``, ``torch.vmap`` and forward mode."""
    inputs = CellInputs(*autocast(inputs))
    if forward_mode_is_active() and (functorch_is_active() or has_tangent(inputs)):
        # The kernels have no forward-mode rule, but every operation of the definition has one.
        return reference(*inputs)
    operands = [tensor.contiguous() for tensor in inputs]
    if forward_mode_is_active():
        return _apply(*operands)  # type: ignore[no-any-return]
    if _RAW_OP_HAS_VMAP:
        return _by_raw_op(inputs)
    new_h, new_cell, _ = FunctorchLLTMFunction.apply(*operands)  # type: ignore[no-untyped-call]
    return new_h, new_cell


def _by_raw_op(inputs: CellInputs) -> tuple[Tensor, Tensor]:
    """`lltm` as one operator, for whoever records operators."""
    new_h, new_cell, _gates = _forward_op(*(tensor.contiguous() for tensor in autocast(inputs)))
    return new_h, new_cell


def autocast(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """If autocast is on, casts as for a linear layer: all floating-point tensors except float64."""
    device_type = tensors[0].device.type
    if device_type not in ("cpu", "cuda") or not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(
        tensor.to(dtype)
        if tensor is not None and tensor.is_floating_point() and tensor.dtype != torch.float64
        else tensor
        for tensor in tensors
    )
