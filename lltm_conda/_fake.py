"""The raw ops for fake and meta tensors: shapes, dtypes and refusals, but no data.

`fake_NAME` has the arguments of ``torch.ops.lltm.NAME``, which ``csrc/ops`` declares, and
returns uninitialised results. Its refusals have the texts of ``csrc/ops/operands.h``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import complex_advice
from ._derivatives import NEEDS
from ._torch_private import device_of
from .engine.judge.project import Record


class Shape(Record):
    """A shape that a check expects: in letters for the message, and in numbers."""

    letters: str
    sizes: tuple[int, ...]


class CellSizes(Record):
    """The sizes of one step, and the shapes that follow from them."""

    batch: int
    features: int
    state: int

    def weights(self) -> Shape:
        return Shape("(3S, S + I)", (3 * self.state, self.state + self.features))

    def bias(self) -> tuple[Shape, Shape]:
        return Shape("(3S)", (3 * self.state,)), Shape("(1, 3S)", (1, 3 * self.state))

    def hidden(self) -> Shape:
        return Shape("(B, S)", (self.batch, self.state))

    def gates(self) -> Shape:
        return Shape("(B, 3, S)", (self.batch, 3, self.state))


class LayerSizes(Record):
    """The sizes of a whole sequence, and the shapes that follow from them."""

    steps: int
    cell: CellSizes

    def initial(self) -> tuple[Shape, Shape]:
        batch, state = self.cell.batch, self.cell.state
        return self.cell.hidden(), Shape("(1, B, S)", (1, batch, state))

    def states(self) -> Shape:
        return Shape("(T, B, S)", (self.steps, self.cell.batch, self.cell.state))

    def gates(self) -> Shape:
        return Shape("(T, B, 3, S)", (self.steps, self.cell.batch, 3, self.cell.state))


class Checks(Record):
    """Compares arguments of an op with its input.

    `origin` ends the message about a wrong shape: it says which arguments give the sizes.
    """

    input: Tensor
    origin: str

    def device_and_dtype(self, name: str, tensor: Tensor) -> None:
        device = device_of(tensor)
        needed_device = device_of(self.input)
        if device != needed_device:
            raise RuntimeError(
                f"lltm: {name} must be on the device of input, {needed_device}, got {device}; "
                f"move it with {name}.to(input.device)"
            )
        if tensor.dtype != self.input.dtype:
            needed_dtype = dtype_name(self.input.dtype)
            raise RuntimeError(
                f"lltm: {name} must have the dtype of input, {needed_dtype}, got "
                f"{dtype_name(tensor.dtype)}; convert it with {name}.to(torch.{needed_dtype})"
            )

    def operand(self, name: str, tensor: Tensor | None, *shapes: Shape) -> None:
        """Refuses a wrong device, dtype or shape. `shapes` are alternatives; None passes."""
        if tensor is None:
            return
        self.device_and_dtype(name, tensor)
        of_equal_dim = (shape for shape in shapes if len(shape.sizes) == tensor.dim())
        expected = next(of_equal_dim, shapes[0])
        letters = " or ".join(shape.letters for shape in shapes)

        def message() -> str:
            return (
                f"lltm: {name} must have shape {letters} = {expected.sizes}, got "
                f"{tuple(tensor.shape)}; {self.origin}"
            )

        if len(expected.sizes) != tensor.dim():
            raise RuntimeError(message())
        for size, expected_size in zip(tensor.shape, expected.sizes, strict=True):
            torch._check(size == expected_size, message)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_floating(input: Tensor) -> None:
    if input.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return
    advice = "convert it with input.float()"
    if input.dtype.is_complex:
        advice = complex_advice("input")
    raise RuntimeError(
        "lltm: input must be float32, float64, float16 or bfloat16, got "
        f"{dtype_name(input.dtype)}; {advice}"
    )


def check_dim(name: str, tensor: Tensor, dim: int, letters: str) -> None:
    if tensor.dim() != dim:
        raise RuntimeError(
            f"lltm: {name} must have shape {letters}, got {tensor.dim()} dimensions: "
            f"{tuple(tensor.shape)}; reshape it"
        )


def check_cell(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor
) -> tuple[CellSizes, Checks]:
    """Checks the arguments that both ops of the cell have; returns sizes, and checks of others."""
    check_floating(input)
    check_dim("input", input, 2, "(B, I)")
    check_dim("old_h", old_h, 2, "(B, S)")
    sizes = CellSizes(batch=input.shape[0], features=input.shape[1], state=old_h.shape[1])
    checks = Checks(input, "B, I and S are read from input (B, I) and old_h (B, S)")
    checks.operand("weights", weights, sizes.weights())
    checks.operand("bias", bias, *sizes.bias())
    checks.operand("old_h", old_h, sizes.hidden())
    return sizes, checks


def check_layer(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
) -> tuple[LayerSizes, Checks]:
    """Checks the arguments that both ops of a layer have; returns sizes, and checks of others."""
    check_floating(input)
    of_weights = Checks(input, "I is read from input (T, B, I), S from the rows of weights")
    of_weights.device_and_dtype("weights", weights)
    check_dim("input", input, 3, "(T, B, I)")
    check_dim("weights", weights, 2, "(3S, S + I)")
    steps, batch, features = input.shape
    torch._check(
        steps > 0,
        lambda: (
            "lltm: input must have shape (T, B, I) with at least one step, got "
            f"{tuple(input.shape)}; leave out empty sequences"
        ),
    )
    cell = CellSizes(batch=batch, features=features, state=weights.shape[0] // 3)
    sizes = LayerSizes(steps=steps, cell=cell)
    of_weights.operand("weights", weights, cell.weights())
    checks = Checks(input, "T, B and I are read from input (T, B, I), S from weights (3S, S + I)")
    checks.operand("bias", bias, *cell.bias())
    checks.operand("initial_h", initial_h, *sizes.initial())
    checks.operand("initial_cell", initial_cell, *sizes.initial())
    return sizes, checks


def new_gradients(needs: int, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """Uninitialised gradients of the five `inputs`, the first of which is the op's input.

    A gradient is empty where its input is None or its bit is not in `needs`.
    """
    model = inputs[0]
    assert model is not None
    return tuple(
        model.new_empty(tensor.shape if tensor is not None and needs & bit else (0,))
        for tensor, bit in zip(inputs, NEEDS, strict=True)
    )


def fake_forward(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    sizes, checks = check_cell(input, weights, bias, old_h)
    checks.operand("old_cell", old_cell, sizes.hidden())
    new_h = input.new_empty(sizes.hidden().sizes)
    new_cell = input.new_empty(sizes.hidden().sizes)
    gates = input.new_empty(sizes.gates().sizes)
    return new_h, new_cell, gates


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
    sizes, checks = check_cell(input, weights, bias, old_h)
    checks.operand("new_cell", new_cell, sizes.hidden())
    checks.operand("gates", gates, sizes.gates())
    checks.operand("grad_h", grad_h, sizes.hidden())
    checks.operand("grad_cell", grad_cell, sizes.hidden())
    checks.operand("grad_gates", grad_gates, sizes.gates())
    return new_gradients(needs, (input, weights, bias, old_h, new_cell))


def fake_layer_forward(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    initial_h: Tensor | None,
    initial_cell: Tensor | None,
    reverse: bool,
    keep_cells: bool,
    allow_tf32: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    sizes, _checks = check_layer(input, weights, bias, initial_h, initial_cell)
    hidden = sizes.cell.hidden().sizes
    output = input.new_empty(sizes.states().sizes)
    final_h = input.new_empty(hidden if initial_h is None else initial_h.shape)
    final_cell = input.new_empty(hidden if initial_cell is None else initial_cell.shape)
    gates = input.new_empty(sizes.gates().sizes)
    cells = input.new_empty(sizes.states().sizes if keep_cells else (0,))
    return output, final_h, final_cell, gates, cells


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
    sizes, checks = check_layer(input, weights, bias, initial_h, initial_cell)
    checks.operand("output", output, sizes.states())
    checks.operand("gates", gates, sizes.gates())
    if cells.dim() == 3:  # otherwise forward did not keep the cell states
        checks.operand("cells", cells, sizes.states())
    checks.operand("grad_output", grad_output, sizes.states())
    checks.operand("grad_cells", grad_cells, sizes.states())
    checks.operand("grad_final_h", grad_final_h, *sizes.initial())
    checks.operand("grad_final_cell", grad_final_cell, *sizes.initial())
    return new_gradients(needs, (input, weights, bias, initial_h, initial_cell))
