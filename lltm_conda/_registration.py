"""The Python rules of the raw ops, for fake tensors, autograd, ZeroTensors and vmap."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._tensors import CellInputs
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
    inputs: CellInputs,
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
    """Results of the cell under ``torch.vmap``, and the mapped dimension of each result.

    `cell` computes the cell without this mapping. Torch gives the other arguments. If weights and
    bias are not mapped, the mapped dimension joins the batch in one call of `cell`. Otherwise this
    function computes the cell in PyTorch's own operations, with a batched GEMM.
    """
    dims = CellInputs(*in_dims)

    def mapped_first(tensor: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return tensor.unsqueeze(0).expand(info.batch_size, *tensor.shape)
        return tensor.movedim(dim, 0)

    x = mapped_first(inputs.input, dims.input)
    h = mapped_first(inputs.old_h, dims.old_h)
    old_cell = mapped_first(inputs.old_cell, dims.old_cell)
    batch_size, state_size = h.shape[1:]
    if dims.weights is None and dims.bias is None:
        new_h, new_cell, gates = cell(
            x.flatten(0, 1).contiguous(),
            inputs.weights,
            inputs.bias,
            h.flatten(0, 1).contiguous(),
            old_cell.flatten(0, 1).contiguous(),
        )
        lanes = (info.batch_size, batch_size)
        results = (
            new_h.unflatten(0, lanes),
            new_cell.unflatten(0, lanes),
            gates.unflatten(0, lanes),
        )
        return results, (0, 0, 0)
    weights = mapped_first(inputs.weights, dims.weights)
    bias = mapped_first(inputs.bias, dims.bias).reshape(info.batch_size, 1, -1)
    z = torch.baddbmm(bias, torch.cat([h, x], dim=2), weights.transpose(1, 2))
    gates = z.reshape(info.batch_size, batch_size, 3, state_size)
    z_i, z_o, z_c = gates.unbind(2)
    new_cell = old_cell + F.elu(z_c) * torch.sigmoid(z_i)
    return (torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell, gates), (0, 0, 0)
