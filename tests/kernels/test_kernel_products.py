"""The CPU kernels' `product`, called without torch: any sizes, strides and transposes."""

from __future__ import annotations

import random

import kernel_table
import pytest
import torch
from kernel_table import CODES

from lltm_conda._project import PROJECT

CPU = PROJECT.folder / "lib" / "kernels-cpu.so"
# Rows, columns and depth: around a tile, a chunk of rows, and a part of the sum.
SIZES = (0, 1, 2, 7, 8, 9, 15, 17, 31, 32, 33, 47, 65, 128, 129, 255, 257, 300, 511, 513, 700)


def with_gaps(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A random matrix in rows that are up to 4 elements longer."""
    return torch.randn(rows, columns + random.randrange(5)).to(dtype)[:, :columns]


def operand(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A random matrix with gaps between its rows or, transposed, between its columns."""
    if random.randrange(2):
        return with_gaps(columns, rows, dtype).T
    return with_gaps(rows, columns, dtype)


def multiply(left: torch.Tensor, right: torch.Tensor, to: torch.Tensor, adds: bool) -> None:
    """Calls `product`, with threads that take parts of a random size."""
    ffi = kernel_table.interface()
    least = random.randrange(1, 9)

    @ffi.callback("lltm_parallel_for")
    def run(begin: int, end: int, grain: int, function: object, context: object) -> None:
        for first in range(begin, end, max(grain, least)):
            function(first, min(first + max(grain, least), end), context)  # type: ignore[operator]

    arguments = ffi.new("lltm_product_arguments*", {"planes": 1, "adds": adds})
    arguments.rows, arguments.depth = left.shape
    arguments.columns = right.shape[1]
    for name, matrix in (("left", left), ("right", right), ("to", to)):
        setattr(arguments, name, ffi.cast("void*", matrix.data_ptr()))
        setattr(arguments, f"{name}_stride", max(matrix.stride()))
    arguments.left_transposed = left.stride(0) < left.stride(1)
    arguments.right_transposed = right.stride(0) < right.stride(1)
    dtype = ffi.cast("lltm_dtype", CODES[to.dtype])
    execution = ffi.new("lltm_execution*", {"parallel_for": run})
    assert kernel_table.table(CPU).product(dtype, arguments, execution) == ffi.NULL


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("seed", range(30))
def test_a_product_is_that_of_float64(dtype: torch.dtype, seed: int) -> None:
    """Within the bound of a sum in parts; what lies between the rows of `to` stays as it was."""
    random.seed(seed)
    torch.manual_seed(seed)
    rows, columns, depth = random.choices(SIZES, k=3)
    left = operand(rows, depth, dtype)
    right = operand(depth, columns, dtype)
    to = with_gaps(rows, columns, dtype)
    adds = random.randrange(2)
    memory = to.as_strided((to.untyped_storage().nbytes() // to.element_size(),), (1,))
    before = memory.clone()
    old = to.clone().double()
    multiply(left, right, to, bool(adds))

    left = left.double()
    right = right.double()
    want = left @ right + adds * old
    size = left.abs() @ right.abs() + adds * old.abs()
    # Each product and each sum is rounded once in float32 or float64; a part has at most 512
    # terms, and at least 16. The reference is in float64, and so as far from the truth at most.
    precision = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    bound = (min(depth, 512) + depth / 16 + 2) * precision * size
    # The result is rounded, too.
    bound += torch.finfo(dtype).eps * want.abs() + torch.finfo(dtype).tiny
    assert ((to.double() - want).abs() <= bound).all()
    to.copy_(before.as_strided(to.shape, to.stride()))
    assert memory.equal(before)
