"""What a step or a sequence launches on the GPU: how many kernels, which, when; how near the copy
those of a step come."""

from __future__ import annotations

import re
from collections import Counter
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
    start: float
    """Since the host began the call, in us."""

    @property
    def end(self) -> float:
        """When it was done."""
        return self.start + self.us


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
        begun = min(e.time_range.start for e in profiler.events())
        events = [e for e in profiler.events() if e.device_type == DeviceType.CUDA]
        events.sort(key=lambda e: e.time_range.start)
        found.append(
            [
                Launch(e.name, float(e.time_range.elapsed_us()), float(e.time_range.start - begun))
                for e in events
            ]
        )
    return found


def pointwise_bytes(size: Size, dtype: torch.dtype) -> dict[str, int]:
    """What the pointwise kernels must move: (z, c) in, (h', c') out; backward (z, c', gh, gc) in,
    (dz, dc) out. Where ours puts h and x side by side on its way, its rate errs on the low side."""
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


@dataclass(frozen=True)
class Trace:
    """When the device worked on one call of a layer."""

    count: float
    before: Summary
    """From the host's begin of the call to the first kernel's."""
    span: Summary
    """From the first kernel's begin to the last one's end."""
    busy: Summary
    """Of that, what kernels ran; the rest waited for the host."""
    names: list[str]
    """How often, how long, and what, in the order in which each came first."""


def measure(cell: Cell, size: Size, sets: list[Inputs]) -> dict[str, Activity]:
    """Per metric (forward, backward), what runs on the device.

    `sets` are taken in turn, so that a small problem is not read from the cache that the call
    before has filled.
    """
    model = pointwise_bytes(size, sets[0].x.dtype)
    return {m: _summary(steps, model[m]) for m, steps in _profiled(cell, sets).items()}


def trace(cell: Cell, inputs: Inputs) -> dict[str, Trace]:
    """Per metric (forward, backward), when the device worked. The profiler slows the host down."""
    return {metric: _traced(calls) for metric, calls in _profiled(cell, [inputs]).items()}


def _profiled(cell: Cell, sets: list[Inputs]) -> dict[str, list[list[Launch]]]:
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
    return {"forward": launches(forward), "backward": launches(backward)}


def _traced(calls: list[list[Launch]]) -> Trace:
    middle = sorted(calls, key=lambda call: call[-1].end - call[0].start)[len(calls) // 2]
    often = Counter(launch.name for launch in middle)
    means = {n: sum(launch.us for launch in middle if launch.name == n) / often[n] for n in often}
    return Trace(
        count=summarise([float(len(call)) for call in calls]).median,
        before=summarise([call[0].start for call in calls]),
        span=summarise([call[-1].end - call[0].start for call in calls]),
        busy=summarise([sum(launch.us for launch in call) for call in calls]),
        names=[f"{often[name]} x {mean:.1f} us {name[:120]}" for name, mean in means.items()],
    )


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
