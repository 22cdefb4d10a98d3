"""RMSNorm as a differentiable function and as a module."""

from typing import Protocol

import torch
from torch import Tensor, library, nn

from .loader import LOADER
from .reference import gradients


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """`x * rsqrt(mean(x²) + eps) * weight` over the last dimension of x, as one kernel.

    Args:
        x: float16, bfloat16, float32 or float64, on the CPU or a CUDA device.
        weight: one factor for each element of the last dimension; of x's dtype and device.
        eps: is added to the mean of the squares.
    """
    if x.is_cuda and not torch.compiler.is_compiling():
        LOADER.check_cuda(x.device)
    tensors = (x.contiguous(), weight.contiguous())
    result: Tensor = torch.ops.own_op.rms_norm(*tensors, eps)
    return result


class RMSNorm(nn.Module):
    """`rms_norm` with its weight, which starts as ones."""

    def __init__(
        self,
        size: int,
        eps: float = 1e-6,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class _Context(Protocol):
    """What autograd keeps from a forward for its backward."""

    eps: float
    saved_tensors: tuple[Tensor, Tensor]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def _fake(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.new_empty(x.shape)


def _fake_backward(dy: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _keep(ctx: _Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: _Context, dy: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True: what follows is differentiated again
        return (*gradients(dy, x, weight, ctx.eps), None)
    tensors = (dy.contiguous(), x, weight)
    dx, dweight = torch.ops.own_op.rms_norm_backward(*tensors, ctx.eps)
    return dx, dweight, None


library.register_fake("own_op::rms_norm", _fake)
library.register_fake("own_op::rms_norm_backward", _fake_backward)
library.register_autograd("own_op::rms_norm", _backward, setup_context=_keep)
