"""The operator as a differentiable function."""

from typing import Protocol

import torch
from torch import Tensor, library

from .loader import LOADER


def scale(x: Tensor, factor: float) -> Tensor:
    """`x * factor`, for a floating-point x on the CPU or a CUDA device."""
    if x.is_cuda and not torch.compiler.is_compiling():
        LOADER.check_cuda(x.device)  # where it cannot compute, an error that says why
    y: Tensor = torch.ops.own_op.scale(x.contiguous(), factor)
    return y


class _Context(Protocol):
    factor: float


def _fake(x: Tensor, factor: float) -> Tensor:
    """The shape and dtype of the result, for torch.compile and torch.export."""
    return x.new_empty(x.shape)


def _keep(ctx: _Context, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.factor = inputs[1]


def _backward(ctx: _Context, dy: Tensor) -> tuple[Tensor, None]:
    return scale(dy, ctx.factor), None  # a gradient for x, none for the factor


library.register_fake("own_op::scale", _fake)
library.register_autograd("own_op::scale", _backward, setup_context=_keep)
