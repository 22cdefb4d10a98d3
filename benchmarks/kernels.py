"""From torch's profiler: which kernels a step or a sequence launches, and when they run."""

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch.utils.benchmark import Timer

from .contender import Calls, Cell, Inputs
from .schema import Size
from .stats import Summary, summarise

GEMM = re.compile(
    r"gemm|cutlass|nvjet|xmma|splitk|cublas|gemv|forward_step|backward_columns|backward_rows",
    re.IGNORECASE,
)
"""Names of matrix product kernels, including the partial sums of a split product, and our kernels
that compute a whole step with its products."""
JOIN = re.compile(r"CatArray")
"""The kernel that joins h and x for the product; the pointwise model does not count it."""
REPEATS = 10


@dataclass(frozen=True)
class Launch:
    name: str
    us: float
    start: float
    """In us since the host began the call."""


@dataclass(frozen=True)
class Profile:
    summary: Summary
    detail: dict[str, float]
    names: list[str]


def of_step(cell: Cell, size: Size, sets: list[Inputs], copy_rate: float) -> dict[str, Profile]:
    """The time of all kernels, and of the pointwise ones, by metric; `sets` are used in turn."""
    # The traffic of the pointwise part. Forward: (z, c) in, (h', c') out. Backward: (z, c', gh, gc)
    # in, (dz, dc) out. If our kernel also joins h and x, this underestimates its rate.
    row = size.batch * size.state * sets[0].x.dtype.itemsize
    moved = {"forward": 6 * row, "backward": 10 * row}
    found = _profiled(cell, sets)
    return {metric: _step(calls, moved[metric], copy_rate) for metric, calls in found.items()}


def of_layer(cell: Cell, inputs: Inputs) -> dict[str, Profile]:
    """The device's busy times by metric (forward, backward). The profiler slows the host down."""
    return {metric: _layer(calls) for metric, calls in _profiled(cell, [inputs]).items()}


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


def _profiled(cell: Cell, sets: list[Inputs]) -> dict[str, list[list[Launch]]]:
    row = [Calls(cell, inputs) for inputs in sets]
    kept: list[tuple[torch.Tensor, ...]] = []

    def forward(i: int) -> None:
        cell.new_step()
        kept.append(row[i % len(row)].forward())

    def backward(i: int) -> None:
        row[i % len(row)].backward(kept.pop(0))

    # All forward calls run first, so that a profile of backward holds only backward.
    return {"forward": _launches(forward), "backward": _launches(backward)}


def _step(calls: list[list[Launch]], bytes_moved: int, copy_rate: float) -> Profile:
    def total(belongs: Callable[[str], object]) -> Summary:
        return summarise([sum(one.us for one in call if belongs(one.name)) for call in calls])

    pointwise = total(lambda name: not GEMM.search(name) and not JOIN.search(name)).median
    rate = bytes_moved / pointwise * 1e6 if pointwise else 0.0
    detail = {
        "launches": statistics.median(float(len(call)) for call in calls),
        "join_us": total(JOIN.search).median,
        "pointwise_us": pointwise,
        "pointwise_bytes_per_second": rate,
        "fraction_of_copy": rate / copy_rate,
    }
    return Profile(total(lambda name: True), detail, [launch.name for launch in calls[-1]])


def _layer(calls: list[list[Launch]]) -> Profile:
    spans = [call[-1].start + call[-1].us - call[0].start for call in calls]
    span = summarise(spans)
    busy = statistics.median(sum(launch.us for launch in call) for call in calls)
    detail = {
        "launches": statistics.median(float(len(call)) for call in calls),
        "before_us": statistics.median(call[0].start for call in calls),
        "busy_us": busy,
        "waits_us": span.median - busy,
    }
    # The call of median length: counts and mean times by kernel, in order of the first launch.
    typical = sorted(zip(spans, calls, strict=True), key=lambda pair: pair[0])[len(calls) // 2][1]
    spent: dict[str, list[float]] = {}
    for launch in typical:
        spent.setdefault(launch.name, []).append(launch.us)
    names = [f"{len(us)} x {sum(us) / len(us):.1f} us {name[:120]}" for name, us in spent.items()]
    return Profile(span, detail, names)
