"""What the raw ops need beside their kernels: shapes without data, autograd, and vmap."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _derivatives

__all__ = ["register", "vmap_forward"]


def _fake_forward(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    batch_size, state_size = old_h.shape
    return (
        input.new_empty((batch_size, state_size)),
        input.new_empty((batch_size, state_size)),
        input.new_empty((batch_size, 3, state_size)),
    )


def _fake_backward(
    grad_h: Tensor | None,
    grad_cell: Tensor | None,
    grad_gates: Tensor | None,
    input: Tensor,
    weights: Tensor,
    bias: Tensor,
    old_h: Tensor,
    new_cell: Tensor,
    gates: Tensor,
    needs: int,
) -> tuple[Tensor, ...]:
    likes = (input, weights, bias, old_h, new_cell)
    return tuple(
        input.new_empty(like.shape if needs & bit else (0,))
        for like, bit in zip(likes, _derivatives.NEEDS, strict=True)
    )


def vmap_forward(
    info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Batching rule of the forward op.

    With shared weights the mapped dimension joins the batch, so one call serves all. Mapped
    weights have no such form: one batched GEMM in PyTorch's own operations serves those.
    """
    input, weights, bias, old_h, old_cell = inputs
    size = info.batch_size

    def mapped_first(tensor: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return tensor.unsqueeze(0).expand(size, *tensor.shape)
        return tensor.movedim(dim, 0)

    rows = [
        mapped_first(tensor, dim)
        for tensor, dim in ((input, in_dims[0]), (old_h, in_dims[3]), (old_cell, in_dims[4]))
    ]
    batch_size, state_size = rows[1].shape[1:]
    if in_dims[1] is None and in_dims[2] is None:
        from .functions import FunctorchLLTMFunction

        x, h, cell = (tensor.flatten(0, 1).contiguous() for tensor in rows)
        new_h, new_cell, gates = FunctorchLLTMFunction.apply(x, weights, bias, h, cell)
        return (
            new_h.reshape(size, batch_size, state_size),
            new_cell.reshape(size, batch_size, state_size),
            gates.reshape(size, batch_size, 3, state_size),
        ), (0, 0, 0)
    x, h, cell = rows
    w = mapped_first(weights, in_dims[1])
    b = mapped_first(bias, in_dims[2]).reshape(size, 1, -1)
    z = torch.baddbmm(b, torch.cat([h, x], dim=2), w.transpose(1, 2))
    gates = z.reshape(size, batch_size, 3, state_size)
    z_i, z_o, z_c = gates.unbind(2)
    new_cell = cell + F.elu(z_c) * torch.sigmoid(z_i)
    return (torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell, gates), (0, 0, 0)


def register() -> None:
    """Registers the Python side of ``torch.ops.lltm``, once per process."""
    library = torch.library
    library.register_fake("lltm::forward", _fake_forward)
    library.register_fake("lltm::backward", _fake_backward)
    library.register_autograd(
        "lltm::forward", _derivatives.backward, setup_context=_derivatives.setup_context
    )
    library.register_autograd(
        "lltm::backward",
        _derivatives.backward_of_backward,
        setup_context=_derivatives.setup_context_of_backward,
    )
    if hasattr(library, "register_vmap"):  # torch >= 2.5
        library.register_vmap("lltm::forward", vmap_forward)
