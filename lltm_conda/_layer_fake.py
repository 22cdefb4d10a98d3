"""The layer's raw ops without data: shapes and dtypes, with the refusals of the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ._derivatives import NEEDS
from ._fake import check_tensor

__all__ = ["fake_layer_backward", "fake_layer_forward"]

_ORIGIN = "T, B and I are read from input (T, B, I), S from weights (3S, S + I)"


def _sizes(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
) -> tuple[int, int, int]:
    for tensor, name, dims, meaning in (
        (input, "input", 3, "(T, B, I)"),
        (weights, "weights", 2, "(3S, S + I)"),
    ):
        if tensor.dim() != dims:
            raise RuntimeError(
                f"lltm: {name} must have shape {meaning}, got {tensor.dim()} dimensions: "
                f"{tuple(tensor.shape)}; reshape it"
            )
    steps, batch_size, input_features = input.shape
    torch._check(
        steps > 0,
        lambda: (
            "lltm: input must have shape (T, B, I) with at least one step, got "
            f"{tuple(input.shape)}; leave out empty sequences"
        ),
    )
    state_size = weights.shape[0] // 3
    rows = 3 * state_size
    check_tensor(
        weights,
        "weights",
        input,
        (rows, state_size + input_features),
        "(3S, S + I)",
        "I is read from input (T, B, I), S from the rows of weights",
    )
    if bias is not None:
        shape = (1, rows) if bias.dim() == 2 else (rows,)
        check_tensor(bias, "bias", input, shape, "(3S) or (1, 3S)", _ORIGIN)
    for state, name in ((initial_h, "initial_h"), (initial_cell, "initial_cell")):
        _check_state(state, name, input, (batch_size, state_size))
    return steps, batch_size, state_size


def _check_state(state: Tensor | None, name: str, input: Tensor, matrix: tuple[int, int]) -> None:
    """`matrix` is (B, S)."""
    if state is not None:
        shape = (1, *matrix) if state.dim() == 3 else matrix
        check_tensor(state, name, input, shape, "(B, S) or (1, B, S)", _ORIGIN)


def _state_like(model: Tensor | None, input: Tensor, matrix: tuple[int, int]) -> Tensor:
    return input.new_empty((1, *matrix) if model is not None and model.dim() == 3 else matrix)


def fake_layer_forward(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool,
    keep_cells: bool,
    allow_tf32: bool,
) -> tuple[Tensor, ...]:
    """Empty results of ``torch.ops.lltm.layer_forward``."""
    steps, batch_size, state_size = _sizes(input, weights, bias, initial_h, initial_cell)
    return (
        input.new_empty((steps, batch_size, state_size)),
        _state_like(initial_h, input, (batch_size, state_size)),
        _state_like(initial_cell, input, (batch_size, state_size)),
        input.new_empty((steps, batch_size, 3, state_size)),
        input.new_empty((steps, batch_size, state_size) if keep_cells else (0,)),
    )


def fake_layer_backward(
    grad_output: Tensor | None,
    grad_final_h: Tensor | None,
    grad_final_cell: Tensor | None,
    grad_cells: Tensor | None,
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    output: Tensor,
    gates: Tensor,
    cells: Tensor,
    needs: int,
    reverse: bool,
    allow_tf32: bool,
) -> tuple[Tensor, ...]:
    """Empty results of ``torch.ops.lltm.layer_backward``."""
    steps, batch_size, state_size = _sizes(input, weights, bias, initial_h, initial_cell)
    sequence = (steps, batch_size, state_size)
    for tensor, name, shape, meaning in (
        (output, "output", sequence, "(T, B, S)"),
        (gates, "gates", (steps, batch_size, 3, state_size), "(T, B, 3, S)"),
        (cells if cells.dim() == 3 else None, "cells", sequence, "(T, B, S)"),
        (grad_output, "grad_output", sequence, "(T, B, S)"),
        (grad_cells, "grad_cells", sequence, "(T, B, S)"),
    ):
        if tensor is not None:
            check_tensor(tensor, name, input, shape, meaning, _ORIGIN)
    _check_state(grad_final_h, "grad_final_h", input, (batch_size, state_size))
    _check_state(grad_final_cell, "grad_final_cell", input, (batch_size, state_size))
    likes = (input, weights, bias, initial_h, initial_cell)
    return tuple(
        input.new_empty(like.shape if like is not None and needs & bit else (0,))
        for like, bit in zip(likes, NEEDS, strict=True)
    )
