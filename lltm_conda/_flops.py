"""The operations that ``torch.utils.flop_counter.FlopCounterMode`` counts for the raw ops.

As for torch's own operators, a product of matrices counts two operations for each
multiplication, and element-wise work counts nothing. The functions get shapes where the ops
have tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from ._torch_private import when_a_mode_asks

Shape = Sequence[int]

_COUNTER = "torch.utils.flop_counter"


def forward_flops(
    input: Shape,
    weights: Shape,
    bias: Shape,
    old_h: Shape,
    old_cell: Shape,
    *,
    out_shape: object,
) -> int:
    return 2 * input[0] * weights[0] * weights[1]


def backward_flops(
    grad_h: Shape | None,
    grad_cell: Shape | None,
    grad_gates: Shape | None,
    input: Shape,
    weights: Shape,
    bias: Shape,
    old_h: Shape,
    new_cell: Shape,
    gates: Shape | None,
    needs: int,
    *,
    out_shape: object,
) -> int:
    batch, features = input
    rows, columns = weights
    operations = 0 if gates is not None else 2 * batch * rows * columns
    if needs & 1:  # of input
        operations += 2 * batch * rows * features
    if needs & 2:  # of weights
        operations += 2 * batch * rows * columns
    if needs & 8:  # of old_h
        operations += 2 * batch * rows * (columns - features)
    return operations


def layer_forward_flops(
    input: Shape,
    weights: Shape,
    bias: Shape | None,
    initial_h: Shape | None,
    initial_cell: Shape | None,
    reverse: bool,
    keep_cells: bool,
    allow_tf32: bool,
    *,
    out_shape: object,
) -> int:
    steps, batch, _features = input
    return 2 * steps * batch * weights[0] * weights[1]


def layer_backward_flops(
    grad_output: Shape | None,
    grad_final_h: Shape | None,
    grad_final_cell: Shape | None,
    grad_cells: Shape | None,
    input: Shape,
    weights: Shape,
    bias: Shape | None,
    initial_h: Shape | None,
    initial_cell: Shape | None,
    output: Shape,
    gates: Shape,
    cells: Shape,
    needs: int,
    reverse: bool,
    allow_tf32: bool,
    *,
    out_shape: object,
) -> int:
    steps, batch, features = input
    rows, columns = weights
    operations = 2 * steps * batch * rows * (columns - features)  # through the recurrence
    if needs & 1:  # of input
        operations += 2 * steps * batch * rows * features
    if needs & 2:  # of weights
        operations += 2 * steps * batch * rows * columns
    return operations


def register() -> None:
    """Registers the formulas: with the counter if it is loaded, else once it counts.

    An import of the counter imports triton where it is installed, which takes longer than all of
    this package, and nearly nobody counts operations. Before torch 2.6 it does not, and the
    counter asks no op, so there it is imported at once.
    """
    if torch.__version__ < "2.6":
        import_module(_COUNTER)
    if _COUNTER in sys.modules:
        _register_with(sys.modules[_COUNTER])
    for op in _formulas():
        when_a_mode_asks(op.default, _tell)


def _formulas() -> dict[Any, Callable[..., int]]:
    return {
        torch.ops.lltm.forward: forward_flops,
        torch.ops.lltm.backward: backward_flops,
        torch.ops.lltm.layer_forward: layer_forward_flops,
        torch.ops.lltm.layer_backward: layer_backward_flops,
    }


def _register_with(counter: ModuleType) -> None:
    for op, formula in _formulas().items():
        if op not in counter.flop_registry:
            counter.register_flop_formula(op)(formula)


def _tell(mode: object) -> None:
    """Gives the formulas to a FlopCounterMode, which copied torch's when it was made."""
    registry = getattr(getattr(mode, "counter", mode), "flop_registry", None)
    if registry is not None and _COUNTER in sys.modules:
        counter = sys.modules[_COUNTER]
        _register_with(counter)
        for op in _formulas():
            registry.setdefault(op, counter.flop_registry[op])
