"""The Python rules of the raw ops, for fake tensors, autograd, ZeroTensors and vmap."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._torch_private import implementations, is_zero_tensor

_library = implementations("lltm")


def register(
    name: str,
    fake: Callable[..., Any],
    backward: Callable[..., Any],
    setup_context: Callable[..., None] | None = None,
) -> None:
    """Registers the rules of ``torch.ops.lltm.<name>``, except for vmap; to be called once per op.
    `fake` is the operator for meta and fake tensors."""
    op = getattr(torch.ops.lltm, name).default
    # `torch.library.register_fake` would do, too, but adds 3 ms to the import.
    _library.impl(name, fake, "Meta")
    torch.library.register_autograd(op, backward, setup_context=setup_context, lib=_library)

    # Torch's own fallback passes on one expanded zero, but most operands must be contiguous.
    def with_memory(value: Any) -> Any:
        is_zero = isinstance(value, Tensor) and is_zero_tensor(value)
        return value.new_zeros(value.shape) if is_zero else value

    _library.impl(name, lambda *arguments: op(*map(with_memory, arguments)), "ZeroTensor")


def batching_rule(
    cell: Callable[..., tuple[Tensor, Tensor, Tensor]],
    info: Any,
    in_dims: tuple[int | None, ...],
    *inputs: Tensor,
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Results of the cell under ``torch.vmap``, and the mapped dimension of each result.

    `cell` computes the cell without this mapping. Torch gives the other arguments. If weights and
    bias are not mapped, the mapped dimension joins the batch in one call of `cell`. Otherwise this
    function computes the cell in PyTorch's own operations, with a batched GEMM.
    """
    size = info.batch_size

    def mapped_first(position: int) -> Tensor:
        tensor, dim = inputs[position], in_dims[position]
        if dim is None:
            return tensor.unsqueeze(0).expand(size, *tensor.shape)
        return tensor.movedim(dim, 0)

    x, h, old_cell = (mapped_first(position) for position in (0, 3, 4))
    batch_size, state_size = h.shape[1:]
    if in_dims[1] is None and in_dims[2] is None:
        rows = [tensor.flatten(0, 1).contiguous() for tensor in (x, h, old_cell)]
        results = cell(rows[0], inputs[1], inputs[2], *rows[1:])
        return tuple(r.unflatten(0, (size, batch_size)) for r in results), (0, 0, 0)
    weights, bias = mapped_first(1), mapped_first(2).reshape(size, 1, -1)
    z = torch.baddbmm(bias, torch.cat([h, x], dim=2), weights.transpose(1, 2))
    gates = z.reshape(size, batch_size, 3, state_size)
    z_i, z_o, z_c = gates.unbind(2)
    new_cell = old_cell + F.elu(z_c) * torch.sigmoid(z_i)
    return (torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell, gates), (0, 0, 0)
