"""The memory that a loop needs at its peak is counted."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks import profiles
from benchmarks.baselines.cells import plain_cell
from benchmarks.contender import Cell, Request, State, make_inputs
from benchmarks.schema import Size

SIZE = Size(8, 4, 64)
ROW = 8 * 64 * 4


def keeper(rows: int) -> Cell:
    """A contender whose every step keeps `rows` rows of (B, S), and two of its inputs."""

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, h: Tensor, c: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(h.new_ones(rows, *h.shape), h, weight)  # type: ignore[attr-defined]
            return h + weight, c + weight

        @staticmethod
        def backward(ctx: object, gh: Tensor, gc: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            saved, _, _ = ctx.saved_tensors  # type: ignore[attr-defined]
            return gh * saved[0], gc, (gh + gc).sum()

    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(()))

    def call(x: Tensor, state: State) -> State:
        return Keep.apply(*state, module.weight)  # type: ignore[no-any-return]

    return Cell("lltm", module, call)


def test_the_peak_of_a_loop_is_what_its_steps_keep() -> None:
    steps = 64
    size = Size(SIZE.batch, SIZE.inputs, SIZE.state, steps)
    peak = profiles.peak_of_loop(keeper(10), make_inputs(size, torch.float32, "cpu", 0))
    expected_bytes = steps * 11 * ROW  # ten rows and h; c is freed once the next one exists
    assert expected_bytes <= peak <= expected_bytes * 1.05


def test_more_kept_means_a_higher_peak(device: str) -> None:
    size = Size(SIZE.batch, SIZE.inputs, SIZE.state, 32)
    cell = plain_cell(Request(size, torch.float32, device))
    double = Size(size.batch, size.inputs, size.state, 64)
    short, long = (
        profiles.peak_of_loop(cell, make_inputs(each, torch.float32, device, 0))
        for each in (size, double)
    )
    assert long > 1.7 * short
