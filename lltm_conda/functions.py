"""The LLTM cell as functions: the plain `lltm`, and the autograd Function of the tutorial."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _derivatives
from ._refusals import refusal
from ._registration import batching_rule, register
from .loader import check_cuda
from .reference import reference

__all__ = ["FunctorchLLTMFunction", "LLTMFunction", "lltm"]

register()

_forward_op = torch.ops.lltm.forward.default
# Looked up once: a step of a small cell takes about as long as a few such look-ups.
_forward_call = _forward_op._op
_backward_call = torch.ops.lltm.backward.default._op
_functorch_active = torch._C._are_functorch_transforms_active
_below_autograd = torch._C._AutoDispatchBelowAutograd
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


class FunctorchLLTMFunction(torch.autograd.Function):
    """The cell for ``torch.func``: returns ``(new_h, new_cell, gates)``.

    functorch needs ``setup_context`` and a batching rule; eager mode is quicker without them.
    """

    @staticmethod
    def forward(
        input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _forward_op(input, weights, bias, old_h, old_cell)  # type: ignore[no-any-return]

    setup_context = staticmethod(_derivatives.setup_context)
    # Under functorch a gradient may itself be mapped or differentiated: only the composite can be.
    backward = staticmethod(_derivatives.differentiable_backward)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> Any:
        return batching_rule(FunctorchLLTMFunction.apply)(info, in_dims, *inputs)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "lltm: forward-mode automatic differentiation (jvp) is not implemented; use reverse "
            "mode (torch.func.vjp, jacrev, grad), or lltm_conda.reference, which has both"
        )


# Multiplications of a step's product up to which a GPU makes the gates again in backward. They are
# three fifths of what a training loop would keep; this takes less than a microsecond.
_MADE_AGAIN = 2_000_000


class _EagerLLTMFunction(torch.autograd.Function):
    """The cell for eager mode: returns ``(new_h, new_cell)``.

    The gates are kept, but are no output: torch would wrap them like one at every step. So who
    differentiates the backward pass makes them again, as part of that graph.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        with _below_autograd():  # this Function is the autograd; the op's own is not asked again
            new_h, new_cell, gates = _forward_call(input, weights, bias, old_h, old_cell)
        if input.is_cuda and gates.numel() * weights.size(1) <= _MADE_AGAIN:
            gates = None
        # As in _derivatives.setup_context, without its calls.
        ctx.save_for_backward(input, weights, bias, old_h, new_cell, gates)
        ctx.set_materialize_grads(False)
        return new_h, new_cell

    @staticmethod
    def backward(
        ctx: Any, grad_h: Tensor | None, grad_cell: Tensor | None
    ) -> _derivatives.Gradients:
        if torch.is_grad_enabled():  # somebody will differentiate this again
            saved = _derivatives.without_gates(ctx.saved_tensors, ctx.needs_input_grad)
            return _derivatives.differentiable_backward(saved, grad_h, grad_cell, None)
        saved = ctx.saved_tensors
        if not saved[0].is_cuda:  # a CPU kernel reads contiguous gradients only
            grad_h, grad_cell = _derivatives.contiguous(grad_h), _derivatives.contiguous(grad_cell)
        return _derivatives.backward_through(
            _backward_below_autograd, saved, ctx.needs_input_grad, grad_h, grad_cell, None
        )

    jvp = FunctorchLLTMFunction.jvp


def _backward_below_autograd(*arguments: Any) -> tuple[Tensor, ...]:
    with _below_autograd():  # nobody differentiates here: that takes the composite
        return _backward_call(*arguments)  # type: ignore[no-any-return]


# Without functorch, Function.apply only looks for wrappers that functorch left behind, and that is
# left to the op's dispatch here.
_eager: Any = super(torch.autograd.Function, _EagerLLTMFunction).apply


def _is_forward_over_reverse() -> bool:
    """Whether forward mode runs over reverse mode here, as in ``torch.func.hessian``.

    No kernel has a forward-mode rule, but every operation of the plain definition has.
    """
    functorch: Any = torch._C._functorch
    modes = [level.key() for level in functorch.get_interpreter_stack() or ()]
    types = functorch.TransformType
    return types.Jvp in modes and types.Grad in modes[modes.index(types.Jvp) :]


def _autocast(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Casts as autocast casts a linear layer: everything but float64 to the autocast dtype."""
    device_type = tensors[0].device.type
    if device_type not in ("cpu", "cuda") or not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(
        tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor
        for tensor in tensors
    )


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
        tensors = _autocast((input, weights, bias, old_h, old_cell))
        new_h, new_cell, _ = _forward_op(*(tensor.contiguous() for tensor in tensors))
        return new_h, new_cell
    return eager_step(input, weights, bias, old_h, old_cell)


def eager_step(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor]:
    """`lltm` for who knows that nobody compiles."""
    try:
        if input.is_cuda:
            check_cuda(input.device)
        if (
            _functorch_active()
            or _any_autocast()
            or not (
                input.is_contiguous()
                and weights.is_contiguous()
                and bias.is_contiguous()
                and old_h.is_contiguous()
                and old_cell.is_contiguous()
            )
        ):
            return _prepared(input, weights, bias, old_h, old_cell)
        return _eager(input, weights, bias, old_h, old_cell)  # type: ignore[no-any-return]
    except (RuntimeError, AttributeError, TypeError) as error:
        tensors = (input, weights, bias, old_h, old_cell)
        reason = refusal(tensors)
        if reason is not None:
            raise NotImplementedError(reason) from error
        raise


def _prepared(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    """The step where something must be done to the tensors first, or by functorch."""
    function = _eager
    if _functorch_active():
        if _is_forward_over_reverse():
            return reference(*tensors)
        function = FunctorchLLTMFunction.apply
    new_h, new_cell, *_ = function(*[tensor.contiguous() for tensor in _autocast(tensors)])
    return new_h, new_cell


class LLTMFunction(torch.autograd.Function):
    """The tutorial's autograd Function: ``LLTMFunction.apply(...) -> (new_h, new_cell)``.

    ``apply`` takes and returns what :func:`lltm` does. ``torch.compile`` looks past it and traces
    ``forward`` and ``backward`` themselves.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        # Not tensor.contiguous(): torch 2.4's dynamo would give its results the names of the same
        # calls in backward, and hand backward the wrong tensors.
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
