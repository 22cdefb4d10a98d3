"""The raw ops for fake and meta tensors: shapes, dtypes and refusals, but no data.

`fake_NAME` has the arguments of ``torch.ops.lltm.NAME``, which ``csrc/ops`` declares, and returns
uninitialised results.
"""

from typing import Any

import torch
from torch import Tensor

from ._derivatives import NEEDS
from ._torch_private import device_of

# The names and shapes of arguments, in the order of the checks.
_CELL = "old_h (B, S); weights (3S, S + I); bias (3S) or (1, 3S)"
_CELL_BACKWARD = (
    f"{_CELL}; new_cell (B, S); gates (B, 3, S); "
    "grad_h (B, S); grad_cell (B, S); grad_gates (B, 3, S)"
)
_LAYER = "bias (3S) or (1, 3S); initial_h (B, S) or (1, B, S); initial_cell (B, S) or (1, B, S)"
_LAYER_BACKWARD = (
    "output (T, B, S); gates (T, B, 3, S); cells (T, B, S); grad_output (T, B, S); "
    "grad_final_h (B, S) or (1, B, S); grad_final_cell (B, S) or (1, B, S); grad_cells (T, B, S)"
)
_OF_LAYER = "T, B and I are read from input (T, B, I), S from weights (3S, S + I)"


def _check_dim(name: str, tensor: Tensor, dim: int, letters: str) -> None:
    if tensor.dim() != dim:
        raise RuntimeError(
            f"lltm: {name} must have shape {letters}, got {tensor.dim()} dimensions: "
            f"{tuple(tensor.shape)}; reshape it"
        )


def _check(
    arguments: str, *tensors: Tensor | None, input: Tensor, state_size: int, origin: str
) -> None:
    """Refuses tensors of a wrong device, dtype or shape, as the real op does.

    `arguments` holds the names and shapes of `tensors`; `origin` says from which arguments the
    letters of the shapes are read.
    """
    *steps, batch_size, features = input.shape
    sizes = {"1": 1, "3": 3, "T": steps[0] if steps else 0, "B": batch_size, "S": state_size}
    sizes |= {"3S": 3 * state_size, "S + I": state_size + features}
    for argument, tensor in zip(arguments.split("; "), tensors, strict=True):
        if tensor is not None:
            name, _, letters = argument.partition(" ")
            texts = [text[1:-1].split(", ") for text in letters.split(" or ")]
            text = next((text for text in texts if len(text) == tensor.dim()), texts[0])
            _check_one(name, tensor, input, tuple(sizes[x] for x in text), letters, origin)


def _check_one(
    name: str, tensor: Tensor, input: Tensor, shape: tuple[int, ...], letters: str, origin: str
) -> None:
    needed, device = device_of(input), device_of(tensor)
    if device != needed:
        raise RuntimeError(
            f"lltm: {name} must be on the device of input, {needed}, got {device}; "
            f"move it with {name}.to(input.device)"
        )
    if tensor.dtype != input.dtype:
        raise RuntimeError(
            f"lltm: {name} must have the dtype of input, {input.dtype}, got {tensor.dtype}; "
            f"convert it with {name}.to(input.dtype)"
        )
    _check_dim(name, tensor, len(shape), letters)
    for size, expected in zip(tensor.shape, shape, strict=True):
        torch._check(
            size == expected,
            lambda: (
                f"lltm: {name} must have shape {letters} = {shape}, got {tuple(tensor.shape)}; "
                f"{origin}"
            ),
        )


def _gradients(needs: int, *inputs: Any) -> tuple[Tensor, ...]:
    """Uninitialised gradients of `inputs`, empty where an input is None or not in `needs`."""
    return tuple(
        inputs[0].new_empty(like.shape if like is not None and needs & bit else (0,))
        for like, bit in zip(inputs, NEEDS, strict=True)
    )


def _check_cell(arguments: str, input: Tensor, old_h: Tensor, *others: Tensor | None) -> None:
    _check_dim("input", input, 2, "(B, I)")
    _check_dim("old_h", old_h, 2, "(B, S)")
    origin = "B, I and S are read from input (B, I) and old_h (B, S)"
    _check(arguments, old_h, *others, input=input, state_size=old_h.shape[1], origin=origin)


def fake_forward(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    _check_cell(f"{_CELL}; old_cell (B, S)", input, old_h, weights, bias, old_cell)
    batch_size, state_size = old_h.shape
    new_h, new_cell = (input.new_empty(old_h.shape) for _ in range(2))
    return new_h, new_cell, input.new_empty((batch_size, 3, state_size))


def fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    *grads, input, weights, bias, old_h, new_cell, gates, needs = arguments
    _check_cell(_CELL_BACKWARD, input, old_h, weights, bias, new_cell, gates, *grads)
    return _gradients(needs, input, weights, bias, old_h, new_cell)


def _check_layer(*inputs: Any) -> tuple[int, int, int]:
    """Checks input, weights, bias and initial states of a layer op, and returns (T, B, S)."""
    input, weights, *others = inputs
    _check_dim("input", input, 3, "(T, B, I)")
    _check_dim("weights", weights, 2, "(3S, S + I)")
    torch._check(
        input.shape[0] > 0,
        lambda: (
            "lltm: input must have shape (T, B, I) with at least one step, got "
            f"{tuple(input.shape)}; leave out empty sequences"
        ),
    )
    state_size = weights.shape[0] // 3
    origin = "I is read from input (T, B, I), S from the rows of weights"
    _check("weights (3S, S + I)", weights, input=input, state_size=state_size, origin=origin)
    _check(_LAYER, *others, input=input, state_size=state_size, origin=_OF_LAYER)
    return (*input.shape[:2], state_size)


def fake_layer_forward(*arguments: Any) -> tuple[Tensor, ...]:
    *inputs, _reverse, keep_cells, _allow_tf32 = arguments
    steps, *state = _check_layer(*inputs)
    batch_size, state_size = state
    finals = [state if initial is None else initial.shape for initial in inputs[3:]]
    shapes = [(steps, *state), *finals, (steps, batch_size, 3, state_size)]
    shapes.append((steps, *state) if keep_cells else (0,))
    return tuple(inputs[0].new_empty(shape) for shape in shapes)


def fake_layer_backward(*arguments: Any) -> tuple[Tensor, ...]:
    *grads, input, weights, bias, h, cell, output, gates, cells, needs, _, _ = arguments
    state_size = _check_layer(input, weights, bias, h, cell)[2]
    kept = cells if cells.dim() == 3 else None  # forward may have left out the cell states
    saved = (output, gates, kept)
    _check(_LAYER_BACKWARD, *saved, *grads, input=input, state_size=state_size, origin=_OF_LAYER)
    return _gradients(needs, input, weights, bias, h, cell)
