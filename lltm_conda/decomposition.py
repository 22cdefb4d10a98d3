"""The raw ops in PyTorch's own operators, for programs that run without this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _plain

__all__ = ["decompositions"]


def decompositions(*, scan: bool = False) -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """A table for ``torch.export.ExportedProgram.run_decompositions``.

    A program that was decomposed with this table has no operator of this package any more, so
    it runs where the package is not installed, and can be converted to ONNX. It computes the
    same values up to rounding, by PyTorch's own operators and so more slowly.

    Args:
        scan: how a layer loops over its steps. False writes the steps out, so the program
            runs sequences of one length. True uses ``torch.scan``, which ``torch.onnx``
            converts to ONNX's ``Scan``, for sequences of any length. That was tried with
            torch 2.13.

    Returns:
        a function for each of the four raw operators.
    """
    ops = torch.ops.lltm
    return {
        ops.forward.default: _plain.forward,
        ops.backward.default: _plain.backward,
        ops.layer_forward.default: layer_forward_by_scan if scan else _plain.layer_forward,
        ops.layer_backward.default: _plain.layer_backward,
    }


def layer_forward_by_scan(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool,
    keep_cells: bool,
    allow_tf32: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tensors = (input, weights, bias, initial_h, initial_cell)
    return _plain.with_gates(
        _plain.steps_by_scan(*tensors, reverse=reverse),
        input,
        weights,
        bias,
        initial_h,
        reverse=reverse,
        keep_cells=keep_cells,
    )
