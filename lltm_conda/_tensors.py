"""The groups of tensors that the functions of the op hand to each other, with names.

Without postponed annotations: a NamedTuple would compile each of them when it is imported.
"""

from typing import Any, NamedTuple

from torch import Tensor


class CellInputs(NamedTuple):
    """The arguments of ``torch.ops.lltm.forward``, or one value for each of them."""

    input: Any
    weights: Any
    bias: Any
    old_h: Any
    old_cell: Any


class CellGradients(NamedTuple):
    """The gradients of the results of ``torch.ops.lltm.forward``; None stands for zeros."""

    new_h: Tensor | None
    new_cell: Tensor | None
    gates: Tensor | None


class SavedCell(NamedTuple):
    """What the backward pass of a step reads. Without `gates`, it computes them again."""

    input: Tensor
    weights: Tensor
    bias: Tensor
    old_h: Tensor
    new_cell: Tensor
    gates: Tensor | None


class LayerResults(NamedTuple):
    """What `lltm_sequence` returns, and describes."""

    output: Tensor
    final_h: Tensor
    final_cell: Tensor
    cells: Tensor
