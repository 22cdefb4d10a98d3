"""What the raw ops need beside their kernels: fake tensors, autograd, and vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _derivatives
from ._fake import fake_backward, fake_backward_lean, fake_forward, fake_forward_lean

__all__ = ["batching_rule", "register"]


# Keeps what `register` says of autograd.
_beneath_autograd: list[torch.library.Library] = []

Rule = Callable[..., tuple[tuple[Tensor, ...], tuple[int, ...]]]


def batching_rule(shared_weights: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> Rule:
    """The rule of a form of the cell: `shared_weights` is that form itself, one level below."""

    def rule(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _batched(shared_weights, info.batch_size, in_dims, inputs)

    return rule


def _batched(
    shared_weights: Callable[..., tuple[Tensor, Tensor, Tensor]],
    size: int,
    in_dims: tuple[int | None, ...],
    inputs: tuple[Tensor, ...],
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Results of the cell with a mapped dimension in some inputs.

    With shared weights the mapped dimension joins the batch, so one call serves all. Mapped
    weights have no such form: one batched GEMM in PyTorch's own operations serves those.
    """
    input, weights, bias, old_h, old_cell = inputs

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
        x, h, cell = (tensor.flatten(0, 1).contiguous() for tensor in rows)
        new_h, new_cell, gates = shared_weights(x, weights, bias, h, cell)
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
    library.register_fake("lltm::forward", fake_forward)
    library.register_fake("lltm::backward", fake_backward)
    # The lean pair is called by an autograd Function: nothing there is asked again. Its fakes are
    # for meta tensors: register_fake looks for its caller's source, which takes a millisecond.
    # Torch passes the caller's file name on as UTF-8, which the name of a folder need not be.
    beneath: torch.library.Library = eval("Library('lltm', 'IMPL')", {"Library": library.Library})
    _beneath_autograd.append(beneath)
    for name, fake in (("forward_lean", fake_forward_lean), ("backward_lean", fake_backward_lean)):
        beneath.impl(name, fake, "Meta")
        beneath.impl(name, library.fallthrough_kernel, "Autograd")
    library.register_autograd(
        "lltm::forward", _derivatives.backward, setup_context=_derivatives.setup_context
    )
    library.register_autograd(
        "lltm::backward",
        _derivatives.backward_of_backward,
        setup_context=_derivatives.setup_context_of_backward,
    )
    # Torch 2.5 has register_vmap too, but asserts in its own code when maps are nested, compiled or
    # differentiated. Without it torch calls the op lane by lane.
    if torch.__version__ >= "2.6":  # a version, not text: "2.10" is newer
        library.register_vmap("lltm::forward", batching_rule(torch.ops.lltm.forward.default))
