"""The operations that ``torch.utils.flop_counter.FlopCounterMode`` counts for the raw ops.

As for torch's own operators, a product of matrices counts two operations for each
multiplication, and element-wise work counts nothing. The functions get shapes where the ops
have tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import torch

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


def register_formulas(counter: ModuleType) -> None:
    formulas = {
        torch.ops.lltm.forward: forward_flops,
        torch.ops.lltm.backward: backward_flops,
        torch.ops.lltm.layer_forward: layer_forward_flops,
        torch.ops.lltm.layer_backward: layer_backward_flops,
    }
    for op, formula in formulas.items():
        counter.register_flop_formula(op)(formula)


class _WhenImported(MetaPathFinder, Loader):
    """Registers the formulas when somebody imports the counter.

    The counter imports triton where it is installed, which takes longer than all of this
    package, and nearly nobody counts operations.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            self.loader = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        register_formulas(module)


def register() -> None:
    """Registers the formulas, at once or when the counter is imported."""
    if _COUNTER in sys.modules:
        register_formulas(sys.modules[_COUNTER])
    else:
        sys.meta_path.insert(0, _WhenImported())
