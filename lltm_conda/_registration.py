"""The Python rules of the raw ops, for fake tensors, autograd, ZeroTensors and vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._tensors import CellInputs
from ._torch_private import (
    OneLevelFunction,
    apply_at_one_level,
    below_autograd,
    forward_mode_is_active,
    functorch_is_active,
    has_tangent,
    implementations,
    is_zero_tensor,
    lower_levels_record,
    tag_as_pt2_compliant,
)
from .engine.judge.project import Record

if TYPE_CHECKING:
    from ._context import Context, VmapInfo

_library = implementations("lltm")


class Rules(Record, kw_only=True):
    """The rules of ``torch.ops.lltm.<name>``; `fake` and `plain` have the op's arguments.

    `fake` is the op for meta and fake tensors. `plain` is the op in PyTorch's own operations,
    for forward mode. `setup_context` and `backward` are those of
    ``torch.library.register_autograd``. `under_transforms`, if there is one, runs instead of
    the op where ``torch.func`` differentiates.
    """

    fake: Callable[..., Any]
    plain: Callable[..., Any]
    setup_context: Callable[..., None] | None
    backward: Callable[..., Any]
    under_transforms: Callable[..., Any] | None = None


def register(name: str, rules: Rules) -> None:
    """Registers the rules of ``torch.ops.lltm.<name>``; to be called once per op."""
    op = getattr(torch.ops.lltm, name).default
    tag_as_pt2_compliant(op)
    # `torch.library.register_fake` would do, too, but adds 3 ms to the import.
    _library.impl(name, rules.fake, "Meta")
    _library.impl(name, autograd_kernel(op, rules), "Autograd")

    # Torch's own fallback passes on one expanded zero, but most operands must be contiguous.
    def with_memory(value: object) -> object:
        if isinstance(value, Tensor) and is_zero_tensor(value):
            return value.new_zeros(value.shape)
        return value

    _library.impl(name, lambda *arguments: op(*map(with_memory, arguments)), "ZeroTensor")


def autograd_kernel(op: torch._ops.OpOverload, rules: Rules) -> Callable[..., Any]:
    """The kernel of an op's Autograd key, in eager mode and under all transforms.

    ``torch.library.register_autograd`` does not do: without a gradient to record it drops
    tangents, and under ``torch.func`` it raises an error.
    """
    below = below_autograd(op)

    class Recorded(OneLevelFunction):
        """The op with its gradients, at one level of transforms."""

        @staticmethod
        def forward(ctx: Context, *arguments: object) -> object:
            with lower_levels_record():
                results = below(*arguments)
            if rules.setup_context is not None:
                rules.setup_context(ctx, arguments, results)
            return results

        backward = staticmethod(rules.backward)

    apply = apply_at_one_level(Recorded)

    def kernel(*arguments: object) -> object:
        in_transforms = functorch_is_active()
        if (in_transforms or forward_mode_is_active()) and has_tangent(arguments):
            return rules.plain(*arguments)
        if torch.is_grad_enabled() and any(map(requires_grad, arguments)):
            if in_transforms and rules.under_transforms is not None:
                return rules.under_transforms(*arguments)
            return apply(*arguments)
        return below(*arguments)

    return kernel


def requires_grad(argument: object) -> bool:
    return isinstance(argument, Tensor) and argument.requires_grad


#: The results of the cell under ``torch.vmap``, and the mapped dimension of each result.
BatchedCell = tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]


def mapped_first(tensor: Tensor, dim: int | None, lanes: int) -> Tensor:
    """A tensor with the mapped dimension in front; expanded, if `dim` is None."""
    if dim is None:
        return tensor.unsqueeze(0).expand(lanes, *tensor.shape)
    return tensor.movedim(dim, 0)


def batching_rule(
    cell: Callable[..., tuple[Tensor, Tensor, Tensor]],
    info: VmapInfo,
    in_dims: tuple[int | None, ...],
    inputs: CellInputs,
) -> BatchedCell:
    """Results of the cell under ``torch.vmap``, and the mapped dimension of each result.

    `cell` computes the cell without this mapping. Torch gives the other arguments. If weights
    and bias are not mapped, the mapped dimension joins the batch in one call of `cell`.
    Otherwise this function computes the cell in PyTorch's own operations, with a batched GEMM.
    """
    dims = CellInputs(*in_dims)
    lanes = info.batch_size
    x = mapped_first(inputs.input, dims.input, lanes)
    h = mapped_first(inputs.old_h, dims.old_h, lanes)
    old_cell = mapped_first(inputs.old_cell, dims.old_cell, lanes)
    batch_size, state_size = h.shape[1:]
    if dims.weights is None and dims.bias is None:
        new_h, new_cell, gates = cell(
            x.flatten(0, 1).contiguous(),
            inputs.weights,
            inputs.bias,
            h.flatten(0, 1).contiguous(),
            old_cell.flatten(0, 1).contiguous(),
        )
        rows = (lanes, batch_size)
        results = (
            new_h.unflatten(0, rows),
            new_cell.unflatten(0, rows),
            gates.unflatten(0, rows),
        )
        return results, (0, 0, 0)
    weights = mapped_first(inputs.weights, dims.weights, lanes)
    bias = mapped_first(inputs.bias, dims.bias, lanes).reshape(lanes, 1, -1)
    z = torch.baddbmm(bias, torch.cat([h, x], dim=2), weights.transpose(1, 2))
    gates = z.reshape(lanes, batch_size, 3, state_size)
    z_i, z_o, z_c = gates.unbind(2)
    new_cell = old_cell + F.elu(z_c) * torch.sigmoid(z_i)
    return (torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell, gates), (0, 0, 0)
