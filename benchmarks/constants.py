"""Measures the times of the parts of a forward step on this GPU: `ForwardCosts` of
measured_bounds.h.

Each family of kernels runs randomly drawn steps, in a CUDA graph and eagerly. Most constants
are fitted to half of the graph's times; the model then predicts the other half.
"""

import math
import os
import statistics
from unittest import mock

import torch
from rich.console import Console
from torch import Tensor

from . import sizes
from .baselines.cells import our_cell
from .contender import DTYPES, Calls, Request, make_inputs
from .report import new_table
from .schema import Size
from .session import set_tf32
from .sizes import Draw, forward_flops
from .timing import GRAPH_STEPS, capture, stopwatch

KINDS = {
    "float32": ("rows4", "rows16", "cublas"),
    "tf32": ("tensor", "cublas"),
    "bfloat16": ("rows4", "rows16", "cublas"),
}
"""The families that the model compares."""
NAMES = {
    "rows4": ("rows4_depth", "rows4_work"),
    "rows16": ("rows_depth", "rows_work"),
    "tensor": ("tensor_slice", "tensor_block"),
    "cublas": ("cublas", "cublas_work", "cublas_megabyte"),
}
FEW_ROWS = 32
"""Steps of up to so many rows run another kernel of "tensor", kFewRows of step.h: not fitted."""
SMALLEST = Size(1, 16, 17)
MOST_WORK = 1e10
"""The most operations of a step. In a larger step only the products limit the speed."""
REPEATS = 5
FIT_ROUNDS = 10


def terms(family: str, size: Size, element_bytes: int) -> tuple[float, ...]:
    """The factors of a family's constants in the model."""
    depth = size.inputs + size.state
    lines = 3 * size.state
    if family.startswith("rows"):
        tile = int(family.removeprefix("rows"))
        return depth, 1e-6 * math.ceil(size.batch / tile) * tile * lines * depth
    if family == "tensor":
        slices = math.ceil(depth * element_bytes / 128)
        return slices, slices * math.ceil(size.batch / 64) * math.ceil(size.state / 16)
    return 1.0, 1e-6 * size.batch * lines * depth, 1e-6 * lines * depth * element_bytes


def predicted(family: str, constants: Tensor, rows: Tensor, launch: float) -> Tensor:
    """The predicted microseconds for each row of terms."""
    parts = rows * constants
    times = parts.amax(1) if family.startswith("rows") else parts.sum(1)
    return times if family == "cublas" else launch + times


def fit(family: str, rows: Tensor, times: Tensor, launch: float) -> Tensor:
    """Fit a family's constants to rows of terms (n, k) and times (n,) in microseconds."""
    if not family.startswith("rows"):
        rest = times if family == "cublas" else times - launch
        solution: Tensor = torch.linalg.lstsq(rows / times[:, None], rest / times).solution
        return solution.clamp(min=0)
    ratios = (times - launch)[:, None] / rows  # time - launch is the larger of two terms
    constants = ratios.quantile(0.1, dim=0)
    for _ in range(FIT_ROUNDS):
        larger = (rows * constants).argmax(1)
        for term in (0, 1):
            if (larger == term).any():
                constants[term] = ratios[larger == term, term].median()
    return constants


def _measure(draw: Draw, family: str) -> tuple[float, float]:
    """Microseconds of a step in a CUDA graph, and of an eager step, host time included."""
    dtype = DTYPES[draw.dtype]
    cell = our_cell(Request(draw.size, dtype, "cuda", 0))
    call = Calls(cell, make_inputs(draw.size, dtype, "cuda", 0)).plain
    forced = mock.patch.dict(os.environ, LLTM_CUDA_CELL=family)
    set_tf32(allowed=draw.dtype == "tf32")
    with forced, torch.no_grad():
        graph, _ = capture(call, GRAPH_STEPS)
        in_graph = stopwatch(cuda=True, steps=GRAPH_STEPS)
        eager = stopwatch(cuda=True, steps=1)
        graph.replay()
        times = [(in_graph(graph.replay)[0], eager(call)[0]) for _ in range(REPEATS)]
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def show(seed: int, count: int, console: Console) -> None:
    """Measure up to `count` steps for each dtype and family; print constants, test the model."""
    # Only unaligned rows (odd S): for most aligned rows step_plan.cu uses limits, not the
    # model.
    unaligned = [
        draw for draw in sizes.draw("step", seed, 40 * count, "cuda") if draw.size.state % 2
    ]
    launch = _measure(Draw(SMALLEST, "float32"), "rows16")[0]
    table = new_table("ForwardCosts, us", ("dtype", "constant"), ("value",))
    quality = new_table(
        "predicted / measured", ("dtype", "family"), ("steps", "10 %", "50 %", "90 %")
    )
    table.add_row("all", "launch", f"{launch:.1f}")
    for dtype, families in KINDS.items():
        draws = [d for d in unaligned if d.dtype == dtype and forward_flops(d.size) <= MOST_WORK]
        many_rows = [draw for draw in draws if draw.size.batch > FEW_ROWS]
        element_bytes = DTYPES[dtype].itemsize
        host_times = []
        for family in families:
            steps = (many_rows if family == "tensor" else draws)[:count]
            rows = torch.tensor(
                [terms(family, step.size, element_bytes) for step in steps]
            ).double()
            times, eager = torch.tensor([_measure(step, family) for step in steps]).double().T
            host_times.append((eager - times).median())
            constants = fit(family, rows[::2], times[::2], launch)
            for name, value in zip(NAMES[family], constants.tolist(), strict=True):
                table.add_row(dtype, name, f"{value:.4f}")
            ratios = (predicted(family, constants, rows, launch) / times)[1::2]
            spread = ratios.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=ratios.dtype)).tolist()
            quality.add_row(dtype, family, str(len(ratios)), *(f"{q:.2f}" for q in spread))
        table.add_row(dtype, "more_launches", f"{host_times[-1] - host_times[0]:.1f}")
    console.print(table)
    console.print(quality)
