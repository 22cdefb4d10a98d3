"""What one step launches on the GPU: how many kernels, which, and how near the copy they come."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .problem import Cell, Inputs
from .schema import Size
from .stats import Summary, summarise

GEMM = re.compile(
    r"gemm|cutlass|nvjet|xmma|splitk|cublas|gemv|forward_step|backward_columns|backward_rows",
    re.IGNORECASE,
)
"""Names of matrix product kernels, the partial sums of a split product included, and our own that
make a whole step, products and all."""
JOIN = re.compile(r"CatArray")
"""The copy of h and x side by side, an operand of the product: no part of the pointwise model."""
REPEATS = 10


@dataclass(frozen=True)
class Launch:
    """One kernel, copy or fill of a step."""

    name: str
    us: float


def launches(step: Callable[[int], object]) -> list[list[Launch]]:
    """The device activities of each of `REPEATS` calls of `step(i)`, in order."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    for i in range(3):
        step(i)
    torch.cuda.synchronize()
    found = []
    for i in range(REPEATS):
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
            step(i)
            torch.cuda.synchronize()
        events = [e for e in profiler.events() if e.device_type == DeviceType.CUDA]
        events.sort(key=lambda e: e.time_range.start)
        found.append([Launch(e.name, float(e.time_range.elapsed_us())) for e in events])
    return found


def pointwise_bytes(size: Size, dtype: torch.dtype) -> dict[str, int]:
    """What the pointwise kernels must move: (z, c) in, (h', c') out; backward (z, c', gh, gc) in,
    (dz, dc) out."""
    row = size.batch * size.state * dtype.itemsize
    return {"forward": 6 * row, "backward": 10 * row}


@dataclass(frozen=True)
class Activity:
    """What the launches of a step add up to."""

    count: float
    total: Summary
    joins: Summary
    """Putting h and x side by side for the matrix product."""
    pointwise: Summary
    """Everything else that is not a matrix product."""
    bytes_per_second: float
    """The bytes a fused pointwise part must move, over the time of `pointwise`."""
    names: list[str]


def measure(cell: Cell, size: Size, sets: list[Inputs]) -> dict[str, Activity]:
    """Per metric (forward, backward), what runs on the device.

    `sets` are taken in turn, so that a small problem is not read from the cache that the call
    before has filled.
    """
    leaves = [(inputs, *inputs.detached(requires_grad=True)) for inputs in sets]
    parameters = list(cell.module.parameters())
    kept: list[tuple[torch.Tensor, ...]] = []

    def forward(i: int) -> None:
        _, x, state = leaves[i % len(leaves)]
        cell.new_step()
        kept.append(tuple(cell.call(x, state)))

    def backward(i: int) -> None:
        inputs, x, state = leaves[i % len(leaves)]
        cotangents = (inputs.grad_output, *inputs.grad_state)
        torch.autograd.grad(kept.pop(0), [x, *state, *parameters], cotangents)

    # Forward first and as often as backward runs (warm calls included), so that each backward has a
    # graph of its own and nothing but backward is in its profile.
    report = {"forward": launches(forward), "backward": launches(backward)}
    model = pointwise_bytes(size, sets[0].x.dtype)
    return {metric: _summary(steps, model[metric]) for metric, steps in report.items()}


def _summary(steps: list[list[Launch]], bytes_moved: int) -> Activity:
    def total(belongs: Callable[[str], object]) -> Summary:
        return summarise(
            [sum(launch.us for launch in step if belongs(launch.name)) for step in steps]
        )

    pointwise = total(lambda name: not GEMM.search(name) and not JOIN.search(name))
    return Activity(
        count=summarise([float(len(step)) for step in steps]).median,
        total=total(lambda name: True),
        joins=total(JOIN.search),
        pointwise=pointwise,
        bytes_per_second=bytes_moved / pointwise.median * 1e6 if pointwise.median else 0.0,
        names=[launch.name for launch in steps[-1]],
    )
