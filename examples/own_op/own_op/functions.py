"""RMSNorm as a differentiable function and as a module."""

from typing import Protocol

import torch
from torch import Tensor, nn

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
    y: Tensor = torch.ops.own_op.rms_norm(x.contiguous(), weight.contiguous(), eps)
    return y


class RMSNorm(nn.Module):
    """`rms_norm` with its weight, which starts as ones."""

    def __init__(
        self,
        size: int,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Context(Protocol):
    """What autograd hands from the forward to the backward of one call."""

    saved_tensors: tuple[Tensor, ...]
    eps: float

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def _fake(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.new_empty(x.shape)


def _fake_backward(dy: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _keep(ctx: Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Context, dy: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True: what follows is differentiated again
        return (*gradients(dy, x, weight, ctx.eps), None)
    dx, dweight = torch.ops.own_op.rms_norm_backward(dy.contiguous(), x, weight, ctx.eps)
    return dx, dweight, None


torch.library.register_fake("own_op::rms_norm", _fake)
torch.library.register_fake("own_op::rms_norm_backward", _fake_backward)
torch.library.register_autograd("own_op::rms_norm", _backward, setup_context=_keep)
