"""The raw ops without data: shapes and dtypes for meta and fake tensors, with the same refusals."""

from __future__ import annotations

import torch
from torch import Tensor

from ._derivatives import NEEDS

__all__ = [
    "check_tensor",
    "fake_backward",
    "fake_forward",
]

_ORIGIN = "B, I and S are read from input (B, I) and old_h (B, S)"


def check_tensor(
    tensor: Tensor,
    name: str,
    input: Tensor,
    shape: tuple[int, ...],
    meaning: str,
    origin: str = _ORIGIN,
) -> None:
    """Refuses what the kernels refuse; `origin` says where the letters of `meaning` come from."""
    if tensor.device != input.device:
        raise RuntimeError(
            f"lltm: {name} must be on the device of input, {input.device}, got {tensor.device}; "
            f"move it with {name}.to(input.device)"
        )
    if tensor.dtype != input.dtype:
        raise RuntimeError(
            f"lltm: {name} must have the dtype of input, {input.dtype}, got {tensor.dtype}; "
            f"convert it with {name}.to(input.dtype)"
        )
    if tensor.dim() != len(shape):
        raise RuntimeError(
            f"lltm: {name} must have shape {meaning}, got {tensor.dim()} dimensions: "
            f"{tuple(tensor.shape)}; reshape it"
        )
    for size, wanted in zip(tensor.shape, shape, strict=True):
        torch._check(
            size == wanted,
            lambda: (
                f"lltm: {name} must have shape {meaning} = {tuple(shape)}, got "
                f"{tuple(tensor.shape)}; {origin}"
            ),
        )


def _sizes(input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor) -> tuple[int, int]:
    for tensor, name, meaning in ((input, "input", "(B, I)"), (old_h, "old_h", "(B, S)")):
        if tensor.dim() != 2:
            raise RuntimeError(
                f"lltm: {name} must have shape {meaning}, got {tensor.dim()} dimensions: "
                f"{tuple(tensor.shape)}; reshape it"
            )
    batch_size, input_features = input.shape
    state_size = old_h.shape[1]
    check_tensor(old_h, "old_h", input, (batch_size, state_size), "(B, S)")
    rows = 3 * state_size
    check_tensor(weights, "weights", input, (rows, state_size + input_features), "(3S, S + I)")
    shape = (1, rows) if bias.dim() == 2 else (rows,)
    check_tensor(bias, "bias", input, shape, "(3S) or (1, 3S)")
    return batch_size, state_size


def fake_forward(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Empty results of ``torch.ops.lltm.forward``."""
    batch_size, state_size = _sizes(input, weights, bias, old_h)
    check_tensor(old_cell, "old_cell", input, (batch_size, state_size), "(B, S)")
    return (
        input.new_empty((batch_size, state_size)),
        input.new_empty((batch_size, state_size)),
        input.new_empty((batch_size, 3, state_size)),
    )


def fake_backward(
    grad_h: Tensor | None,
    grad_cell: Tensor | None,
    grad_gates: Tensor | None,
    input: Tensor,
    weights: Tensor,
    bias: Tensor,
    old_h: Tensor,
    new_cell: Tensor,
    gates: Tensor | None,
    needs: int,
) -> tuple[Tensor, ...]:
    """Empty results of ``torch.ops.lltm.backward``."""
    batch_size, state_size = _sizes(input, weights, bias, old_h)
    plane, cube = (batch_size, state_size), (batch_size, 3, state_size)
    for tensor, name, shape in (
        (new_cell, "new_cell", plane),
        (gates, "gates", cube),
        (grad_h, "grad_h", plane),
        (grad_cell, "grad_cell", plane),
        (grad_gates, "grad_gates", cube),
    ):
        if tensor is not None:
            check_tensor(tensor, name, input, shape, "(B, S)" if shape is plane else "(B, 3, S)")
    likes = (input, weights, bias, old_h, new_cell)
    return tuple(
        input.new_empty(like.shape if needs & bit else (0,))
        for like, bit in zip(likes, NEEDS, strict=True)
    )
