"""The four raw ops in PyTorch's own operations.

They have the arguments and the results of ``torch.ops.lltm``. Forward mode runs them, since
the kernels know no tangents. `lltm_conda.decompositions` hands them to programs that load
without the package. `steps_of_cells` is the loop over a cell that stands for a layer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ._derivatives import NEEDS, NEEDS_ALL, differentiable
from ._tensors import CellGradients, LayerResults, SavedCell
from .reference import reference


def forward(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    new_h, new_cell = reference(input, weights, bias, old_h, old_cell)
    z = F.linear(torch.cat([old_h, input], dim=1), weights, bias.flatten())
    return new_h, new_cell, z.unflatten(1, (3, old_h.shape[1]))


def backward(
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
    if grad_h is None and grad_cell is None and grad_gates is None:
        grad_cell = torch.zeros_like(new_cell)
    gradients = differentiable(
        CellGradients(grad_h, grad_cell, grad_gates),
        SavedCell(
            input=input,
            weights=weights,
            bias=bias,
            old_h=old_h,
            new_cell=new_cell,
            gates=gates,
        ),
        [bool(needs & bit) for bit in NEEDS],
    )
    return tuple(input.new_empty(0) if grad is None else grad for grad in gradients)


def steps_of_cells(
    cell_op: Callable[..., tuple[Tensor, Tensor]],
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool = False,
) -> LayerResults:
    """`lltm_sequence` as a loop over `lltm` or `reference`, differentiable to any order.

    No other tensor shares memory with the final states, so callers may change them in place.
    """
    if bias is None:
        bias = weights.new_zeros(weights.shape[0])
    h = first_state(initial_h, input, weights)
    cell = first_state(initial_cell, input, weights)
    hidden_states = []
    cell_states = []
    order = -1 if reverse else 1
    for x in input.unbind(0)[::order]:
        h, cell = cell_op(x, weights, bias, h, cell)
        hidden_states.append(h)
        cell_states.append(cell)
    return LayerResults(
        output=torch.stack(hidden_states[::order]),
        final_h=final_state(h, initial_h),
        final_cell=final_state(cell, initial_cell),
        cells=torch.stack(cell_states[::order]),
    )


def steps_by_scan(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    *,
    reverse: bool = False,
) -> LayerResults:
    """`steps_of_cells` of `reference` as a ``torch.scan``, for programs of any length.

    The step has nothing that backward would need a size for: torch 2.13 cannot trace the
    derivative of such a scan, and it traces one even where only parameters ask for it.
    """
    from torch._higher_order_ops.scan import scan

    flat_bias = weights.new_zeros(weights.shape[0]) if bias is None else bias.flatten()
    start = (
        first_state(initial_h, input, weights).clone(),
        first_state(initial_cell, input, weights).clone(),
    )

    def step(
        state: tuple[Tensor, Tensor], x: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        h, cell = reference(x, weights, flat_bias, *state)
        return (h, cell), (h.clone(), cell.clone())  # `scan` takes no tensor twice

    (h, cell), (output, cells) = scan(step, start, input, reverse=reverse)
    return LayerResults(
        output=output,
        final_h=final_state(h, initial_h),
        final_cell=final_state(cell, initial_cell),
        cells=cells,
    )


def first_state(initial: Tensor | None, input: Tensor, weights: Tensor) -> Tensor:
    """``(B, S)``: an initial state of a layer, or zeros where there is none."""
    if initial is None:
        return input.new_zeros(input.shape[1], weights.shape[0] // 3)
    return initial.squeeze(0) if initial.dim() == 3 else initial


def final_state(state: Tensor, initial: Tensor | None) -> Tensor:
    """A copy of a state, in the shape of the initial state."""
    return state.clone() if initial is None else state.reshape(initial.shape).clone()


def previous_states(states: Tensor, first: Tensor, *, reverse: bool) -> Tensor:
    """``(T, B, S)``: the states before each step, from those after each step."""
    start = first.unsqueeze(0)
    return torch.cat([states[1:], start] if reverse else [start, states[:-1]])


def layer_forward(
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
    results = steps_of_cells(reference, *tensors, reverse=reverse)
    return with_gates(
        results, input, weights, bias, initial_h, reverse=reverse, keep_cells=keep_cells
    )


def with_gates(
    results: LayerResults,
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    *,
    reverse: bool,
    keep_cells: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What the raw op of a layer returns, from the results of a loop over its cell."""
    output, final_h, final_cell, cells = results
    first = first_state(initial_h, input, weights)
    previous = previous_states(output, first, reverse=reverse)
    flat_bias = None if bias is None else bias.flatten()
    z = F.linear(torch.cat([previous, input], dim=2), weights, flat_bias)
    gates = z.unflatten(2, (3, output.shape[2])).detach()
    return output, final_h, final_cell, gates, cells if keep_cells else input.new_empty(0)


def layer_backward(
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
    flat_bias = weights.new_zeros(weights.shape[0]) if bias is None else bias.flatten()
    h_before = previous_states(output, first_state(initial_h, input, weights), reverse=reverse)
    if cells.dim() != 3:  # forward did not keep them
        cells = add_up_cells(gates, first_state(initial_cell, input, weights), reverse=reverse)
    d_h = None if grad_final_h is None else grad_final_h.view_as(output[0])
    d_cell = (
        torch.zeros_like(output[0])
        if grad_final_cell is None
        else grad_final_cell.view_as(output[0])
    )
    sum_of_weights, sum_of_bias = torch.zeros_like(weights), torch.zeros_like(flat_bias)
    d_inputs: dict[int, Tensor] = {}
    steps = range(input.shape[0])
    for t in steps if reverse else reversed(steps):
        if grad_output is not None:
            d_h = grad_output[t] if d_h is None else d_h + grad_output[t]
        if grad_cells is not None:
            d_cell = d_cell + grad_cells[t]
        d_x, d_weights, d_bias, d_h, d_cell = backward(
            grad_h=d_h,
            grad_cell=d_cell,
            grad_gates=None,
            input=input[t],
            weights=weights,
            bias=flat_bias,
            old_h=h_before[t],
            new_cell=cells[t],
            gates=gates[t],
            needs=NEEDS_ALL,
        )
        d_inputs[t] = d_x
        sum_of_weights = sum_of_weights + d_weights
        sum_of_bias = sum_of_bias + d_bias
    if d_h is None:  # no steps, and no gradient of the final state
        d_h = torch.zeros_like(d_cell)
    gradients = (
        torch.stack([d_inputs[t] for t in steps]),
        sum_of_weights,
        None if bias is None else sum_of_bias.reshape(bias.shape),
        None if initial_h is None else d_h.reshape(initial_h.shape),
        None if initial_cell is None else d_cell.reshape(initial_cell.shape),
    )
    return tuple(
        input.new_empty(0) if grad is None or not needs & bit else grad
        for grad, bit in zip(gradients, NEEDS, strict=True)
    )


def add_up_cells(gates: Tensor, first: Tensor, *, reverse: bool) -> Tensor:
    """``(T, B, S)``: the cell states of a layer, from its pre-activations."""
    z_i, _z_o, z_c = gates.unbind(2)
    addends = F.elu(z_c) * torch.sigmoid(z_i)
    if reverse:
        addends = addends.flip(0)
    cells = first + addends.cumsum(0)
    return cells.flip(0) if reverse else cells
