"""The raw ops without data: shapes and dtypes for meta and fake tensors, with the same refusals.

``csrc/ops`` declares the operators with their arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._derivatives import NEEDS
from ._torch_private import device_of

_CELL = "B, I and S are read from input (B, I) and old_h (B, S)"
_LAYER = "T, B and I are read from input (T, B, I), S from weights (3S, S + I)"
_WEIGHTS_OF_LAYER = "I is read from input (T, B, I), S from the rows of weights"


def _check_dim(tensor: Tensor, name: str, dim: int, meaning: str) -> None:
    if tensor.dim() != dim:
        raise RuntimeError(
            f"lltm: {name} must have shape {meaning}, got {tensor.dim()} dimensions: "
            f"{tuple(tensor.shape)}; reshape it"
        )


def _check(
    tensor: Tensor | None,
    name: str,
    input: Tensor,
    shape: tuple[int, ...],
    meaning: str,
    origin: str,
) -> None:
    """Refuses the tensors that the kernels refuse, with the same text.

    `shape` is the shape without a leading 1, if `meaning` allows both, as "(3S) or (1, 3S)" does.
    `origin` says where the letters of `meaning` come from.
    """
    if tensor is None:
        return
    wanted, device = device_of(input), device_of(tensor)
    if device != wanted:
        raise RuntimeError(
            f"lltm: {name} must be on the device of input, {wanted}, got {device}; "
            f"move it with {name}.to(input.device)"
        )
    if tensor.dtype != input.dtype:
        raise RuntimeError(
            f"lltm: {name} must have the dtype of input, {input.dtype}, got {tensor.dtype}; "
            f"convert it with {name}.to(input.dtype)"
        )
    if "or (1, " in meaning and tensor.dim() > len(shape):
        shape = (1, *shape)
    _check_dim(tensor, name, len(shape), meaning)
    for size, expected in zip(tensor.shape, shape, strict=True):
        torch._check(
            size == expected,
            lambda: (
                f"lltm: {name} must have shape {meaning} = {tuple(shape)}, got "
                f"{tuple(tensor.shape)}; {origin}"
            ),
        )


def _empty_gradients(
    needs: int, input: Tensor, others: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """The gradients of `input` and `others`, each without elements if `needs` lacks its bit."""
    return tuple(
        input.new_empty(like.shape if like is not None and needs & bit else (0,))
        for like, bit in zip((input, *others), NEEDS, strict=True)
    )


# The cell.


def _cell_sizes(input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor) -> tuple[int, int]:
    _check_dim(input, "input", 2, "(B, I)")
    _check_dim(old_h, "old_h", 2, "(B, S)")
    (batch_size, input_features), state_size = input.shape, old_h.shape[1]
    rows, columns = 3 * state_size, state_size + input_features
    _check(old_h, "old_h", input, (batch_size, state_size), "(B, S)", _CELL)
    _check(weights, "weights", input, (rows, columns), "(3S, S + I)", _CELL)
    _check(bias, "bias", input, (rows,), "(3S) or (1, 3S)", _CELL)
    return batch_size, state_size


def fake_forward(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Empty results of ``torch.ops.lltm.forward``."""
    batch_size, state_size = _cell_sizes(input, weights, bias, old_h)
    _check(old_cell, "old_cell", input, (batch_size, state_size), "(B, S)", _CELL)
    return (
        input.new_empty((batch_size, state_size)),
        input.new_empty((batch_size, state_size)),
        input.new_empty((batch_size, 3, state_size)),
    )


def fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Empty results of ``torch.ops.lltm.backward``."""
    grad_h, grad_cell, grad_gates, input, weights, bias, old_h, new_cell, gates, needs = arguments
    batch_size, state_size = _cell_sizes(input, weights, bias, old_h)
    state, all_gates = (batch_size, state_size), (batch_size, 3, state_size)
    _check(new_cell, "new_cell", input, state, "(B, S)", _CELL)
    _check(gates, "gates", input, all_gates, "(B, 3, S)", _CELL)
    _check(grad_h, "grad_h", input, state, "(B, S)", _CELL)
    _check(grad_cell, "grad_cell", input, state, "(B, S)", _CELL)
    _check(grad_gates, "grad_gates", input, all_gates, "(B, 3, S)", _CELL)
    return _empty_gradients(needs, input, (weights, bias, old_h, new_cell))


# The layer.


def _layer_sizes(*tensors: Any) -> tuple[int, int, int]:
    input, weights, bias, initial_h, initial_cell = tensors
    _check_dim(input, "input", 3, "(T, B, I)")
    _check_dim(weights, "weights", 2, "(3S, S + I)")
    steps, batch_size, input_features = input.shape
    torch._check(
        steps > 0,
        lambda: (
            "lltm: input must have shape (T, B, I) with at least one step, got "
            f"{tuple(input.shape)}; leave out empty sequences"
        ),
    )
    state_size = weights.shape[0] // 3
    rows, columns = 3 * state_size, state_size + input_features
    _check(weights, "weights", input, (rows, columns), "(3S, S + I)", _WEIGHTS_OF_LAYER)
    _check(bias, "bias", input, (rows,), "(3S) or (1, 3S)", _LAYER)
    state = (batch_size, state_size)
    _check(initial_h, "initial_h", input, state, "(B, S) or (1, B, S)", _LAYER)
    _check(initial_cell, "initial_cell", input, state, "(B, S) or (1, B, S)", _LAYER)
    return steps, batch_size, state_size


def fake_layer_forward(*arguments: Any) -> tuple[Tensor, ...]:
    """Empty results of ``torch.ops.lltm.layer_forward``."""
    input, _weights, _bias, initial_h, initial_cell, _reverse, keep_cells, _allow_tf32 = arguments
    steps, batch_size, state_size = _layer_sizes(*arguments[:5])
    state = (batch_size, state_size)
    return (
        input.new_empty((steps, *state)),
        input.new_empty(state if initial_h is None else initial_h.shape),
        input.new_empty(state if initial_cell is None else initial_cell.shape),
        input.new_empty((steps, batch_size, 3, state_size)),
        input.new_empty((steps, *state) if keep_cells else (0,)),
    )


def fake_layer_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Empty results of ``torch.ops.lltm.layer_backward``."""
    grad_output, grad_final_h, grad_final_cell, grad_cells, *tensors = arguments[:9]
    output, gates, cells, needs, _reverse, _allow_tf32 = arguments[9:]
    steps, batch_size, state_size = _layer_sizes(*tensors)
    input, *others = tensors
    state, sequence = (batch_size, state_size), (steps, batch_size, state_size)
    _check(output, "output", input, sequence, "(T, B, S)", _LAYER)
    _check(gates, "gates", input, (steps, batch_size, 3, state_size), "(T, B, 3, S)", _LAYER)
    if cells.dim() == 3:  # otherwise forward did not keep them
        _check(cells, "cells", input, sequence, "(T, B, S)", _LAYER)
    _check(grad_output, "grad_output", input, sequence, "(T, B, S)", _LAYER)
    _check(grad_cells, "grad_cells", input, sequence, "(T, B, S)", _LAYER)
    _check(grad_final_h, "grad_final_h", input, state, "(B, S) or (1, B, S)", _LAYER)
    _check(grad_final_cell, "grad_final_cell", input, state, "(B, S) or (1, B, S)", _LAYER)
    return _empty_gradients(needs, input, others)
