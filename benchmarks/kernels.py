"""From torch's profiler: which kernels a step or a sequence launches, and when they run."""

import re
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import NamedTuple

import torch
from torch.utils.benchmark import Timer

from .contender import Calls, Cell, Request, make_inputs
from .schema import Measured

GEMM = re.compile(
    r"gemm|cutlass|nvjet|xmma|splitk|cublas|gemv|forward_step|backward_columns|backward_rows",
    re.IGNORECASE,
)
"""Names of matrix product kernels, including the partial sums of a split product, and our kernels
that compute a whole step with its products."""
JOIN = re.compile(r"CatArray")
"""The kernel that joins h and x for the product; the pointwise model does not count it."""
REPEATS = 10


class Launch(NamedTuple):
    name: str
    us: float
    start: float
    """In us since the host began the call."""


def measure(cell: Cell, request: Request) -> dict[str, Measured]:
    """The times of the kernels of a step or a sequence, by metric (forward, backward)."""
    size, device = request.size, torch.cuda.current_device()
    row = size.batch * size.state * request.dtype.itemsize
    # As many sets of inputs as fill the L2 cache four times, used in turn.
    cache_size = torch.cuda.get_device_properties(device).L2_cache_size
    count = 1 if size.steps > 1 else max(1, min(32, -(-4 * cache_size // (6 * row))))
    inputs = [make_inputs(size, request.dtype, "cuda", 100 + i) for i in range(count)]
    sets = [Calls(cell, each) for each in inputs]
    kept: list[tuple[torch.Tensor, ...]] = []

    def forward(i: int) -> None:
        cell.new_step()
        kept.append(sets[i % count].forward())

    def backward(i: int) -> None:
        sets[i % count].backward(kept.pop(0))

    # All forward calls run first, so that a profile of backward holds only backward.
    found = {"forward": _launches(forward), "backward": _launches(backward)}
    if size.steps > 1:
        return {metric: of_layer(calls) for metric, calls in found.items()}
    # The traffic of the pointwise part. Forward: (z, c) in, (h', c') out. Backward: (z, c', gh, gc)
    # in, (dz, dc) out. If our kernel also joins h and x, this underestimates its rate.
    moved = {"forward": 6 * row, "backward": 10 * row}
    return {metric: of_step(calls, moved[metric]) for metric, calls in found.items()}


@cache
def copy_rate() -> float:
    """Bytes per second, read plus written, of a copy that moves 2 GiB, far beyond any L2 cache."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    timer = Timer("target.copy_(source)", globals={"target": target, "source": source})
    timer.timeit(2)
    return 2.0 * source.nbytes / timer.blocked_autorange(min_run_time=0.2).median


def _launches(step: Callable[[int], object]) -> list[list[Launch]]:
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
        spans = [(e.name, e.time_range) for e in events]
        found.append([Launch(n, s.elapsed_us(), float(s.start - begun)) for n, s in spans])
    return found


def of_step(calls: list[list[Launch]], bytes_moved: int) -> Measured:
    """The time of all kernels, and of the pointwise ones."""

    def total(belongs: Callable[[str], object]) -> list[float]:
        return [sum(one.us for one in call if belongs(one.name)) for call in calls]

    pointwise = median(total(lambda name: not GEMM.search(name) and not JOIN.search(name)))
    rate = bytes_moved / pointwise * 1e6 if pointwise else 0.0
    detail = {
        "launches": median(float(len(call)) for call in calls),
        "join_us": median(total(JOIN.search)),
        "pointwise_us": pointwise,
        "pointwise_bytes_per_second": rate,
        "fraction_of_copy": rate / copy_rate(),
    }
    return Measured("us", [total(lambda _: True)], detail, [one.name for one in calls[-1]])


def of_layer(calls: list[list[Launch]]) -> Measured:
    """The device's busy time, not divided by the steps. The profiler slows the host down."""
    spans = [call[-1].start + call[-1].us - call[0].start for call in calls]
    busy = median(sum(launch.us for launch in call) for call in calls)
    detail = {
        "launches": median(float(len(call)) for call in calls),
        "before_us": median(call[0].start for call in calls),
        "busy_us": busy,
        "waits_us": median(spans) - busy,
    }
    return Measured("us a call", [spans], detail, [one.name for one in calls[-1]])
