"""The CUDA kernels' `copy`, called without torch: several copies of any sizes in one launch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import kernel_table
import pytest
import torch
from kernel_table import CODES

from lltm_conda import loader
from lltm_conda._project import PROJECT

if TYPE_CHECKING:
    from _cffi_backend import _CDataBase as CData

pytestmark = pytest.mark.cuda
MOST = 13  # copies of a launch
# Planes, rows and columns: few long rows, many short ones, more rows than a launch has warps, and
# sizes around what a lane, a warp or a block reads at once.
SHAPES = [
    (1, 1, 300_000),
    (1, 17, 11_688),
    (1, 20_000, 3),
    (40, 300, 9),
    (2, 3, 4097),
    (1, 0, 5),
    (1, 5, 0),
    (1, 1, 1),
    (3, 33, 257),
]


def drawn(source: random.Random) -> tuple[int, int, int]:
    return source.randint(1, 4), int(1500 ** source.random()), int(3000 ** source.random())


class OneCopy:
    """Tensors with gaps between their rows, of which either may have more rows or columns."""

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, source: random.Random):
        planes, rows, columns = shape
        more = [source.randrange(4) for _ in range(6)]
        self.rows = rows + more[0] if rows else 0, rows + more[1]
        self.columns = columns + more[2] if columns else 0, columns + more[3]
        sizes = [
            (planes, r, c + gap)
            for r, c, gap in zip(self.rows, self.columns, more[4:], strict=True)
        ]
        self.start = torch.randn(sizes[0], device="cuda").to(dtype)
        self.end = torch.randn(sizes[1], device="cuda").to(dtype)
        self.want = self.end.clone()
        inside = self.want[:, :, : self.columns[1]]
        inside.zero_()
        r, c = map(min, (self.rows, self.columns))
        inside[:, :r, :c] = self.start[:, :r, :c]

    def fill(self, copy: CData, void: Callable[[int], CData]) -> None:
        copy.to = void(self.end.data_ptr())
        copy.planes = len(self.end)
        setattr(copy, "from", void(self.start.data_ptr()))
        copy.from_rows, copy.to_rows = self.rows
        copy.from_columns, copy.to_columns = self.columns
        copy.from_stride = self.start.size(2)
        copy.to_stride = self.end.size(2)


@pytest.mark.parametrize("dtype", CODES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_copies_of_any_sizes_are_exact_and_leave_gaps_alone(dtype, seed) -> None:
    torch.manual_seed(seed)
    source = random.Random(seed)
    shapes = [*SHAPES, *(drawn(source) for _ in range(MOST - len(SHAPES)))]
    chosen = source.sample(shapes, source.choice((1, 3, MOST)))
    copies = [OneCopy(shape, dtype, source) for shape in chosen]
    ffi = kernel_table.interface()
    table = kernel_table.table(PROJECT.folder / "lib" / f"kernels-{loader.load().cuda.name}.so")
    arguments = ffi.new("lltm_copy[]", len(copies))
    for one, argument in zip(copies, arguments, strict=True):
        one.fill(argument, lambda address: ffi.cast("void*", address))
    execution = ffi.new("lltm_execution*", {"device_index": 0})
    execution.stream = ffi.cast("void*", torch.cuda.current_stream().cuda_stream)
    dtype_code = ffi.cast("lltm_dtype", CODES[dtype])
    assert table.copy(dtype_code, len(copies), arguments, execution) == ffi.NULL
    for shape, one in zip(chosen, copies, strict=True):
        assert torch.equal(one.end, one.want), shape
