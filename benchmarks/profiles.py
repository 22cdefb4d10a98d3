"""The protocols `kernels` and `memory`, which `measurements/README.md` defines."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer

from .contender import Calls, Cell, Inputs, Request, State, make_inputs
from .schema import Measured

GEMM = re.compile(
    r"gemm|cutlass|nvjet|xmma|splitk|cublas|gemv|forward_step|backward_columns|backward_rows",
    re.IGNORECASE,
)
"""Matches the kernels of matrix products, the kernels that add up a split product, and our
kernels that compute a step's products themselves."""
JOIN = re.compile(r"CatArray|copy_all")
"""Matches the kernels, torch's and ours, that join h and x for the product. The pointwise
time excludes them."""
REPEATS = 10
LOOP_STEPS = 256


class Launch(NamedTuple):
    name: str
    us: float


def kernels(cell: Cell, request: Request) -> dict[str, Measured]:
    """The times of the kernels of a step, for forward and for backward."""
    size = request.size
    device = torch.cuda.current_device()
    row = size.batch * size.state * request.dtype.itemsize
    # The sets of inputs of a step take turns. Together, their pointwise parts move at least
    # four times the bytes of the L2 cache, unless that needs more than 32 sets.
    cache_size = torch.cuda.get_device_properties(device).L2_cache_size
    count = max(1, min(32, -(-4 * cache_size // (6 * row))))
    inputs = [make_inputs(size, request.dtype, "cuda", 100 + i) for i in range(count)]
    sets = [Calls(cell, one_set) for one_set in inputs]
    kept: list[tuple[Tensor, ...]] = []

    # All forward calls run first, so that a profile of backward holds only backward.
    launches = {
        "forward": _launches(lambda i: kept.append(sets[i % count].forward())),
        "backward": _launches(lambda i: sets[i % count].backward(kept.pop(0))),
    }
    # The pointwise part must move these bytes: forward reads (z, c) and writes (h', c'),
    # backward reads (z, c', gh, gc) and writes (dz, dc). Our kernels that also join h and x
    # move more.
    moved = {"forward": 6 * row, "backward": 10 * row}
    return {metric: of_step(calls, moved[metric]) for metric, calls in launches.items()}


@cache
def copy_rate() -> float:
    """Bytes per second, read plus written, of a copy of 1 GiB, which exceeds every L2 cache."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    timer = Timer("target.copy_(source)", globals={"target": target, "source": source})
    timer.timeit(2)
    return 2.0 * source.nbytes / timer.blocked_autorange(min_run_time=0.2).median


def _launches(step: Callable[[int], object]) -> list[list[Launch]]:
    """The device's activities in each of `REPEATS` calls of `step(i)`, in order."""
    for i in range(3):
        step(i)
    torch.cuda.synchronize()
    calls = []
    for i in range(REPEATS):
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
            step(i)
            torch.cuda.synchronize()
        events = sorted(profiler.events(), key=lambda e: e.time_range.start)
        calls.append(
            [
                Launch(event.name, event.time_range.elapsed_us())
                for event in events
                if event.device_type.name == "CUDA"
            ]
        )
    return calls


def of_step(calls: list[list[Launch]], bytes_moved: int) -> Measured:
    """The time of all kernels; the time of the pointwise kernels is among the details."""

    def total(belongs: Callable[[str], object]) -> list[float]:
        return [sum(launch.us for launch in call if belongs(launch.name)) for call in calls]

    pointwise = median(total(lambda name: not GEMM.search(name) and not JOIN.search(name)))
    rate = bytes_moved / pointwise * 1e6 if pointwise else 0.0
    detail = {
        "launches": median(float(len(call)) for call in calls),
        "join_us": median(total(JOIN.search)),
        "pointwise_us": pointwise,
        "pointwise_bytes_per_second": rate,
        "fraction_of_copy": rate / copy_rate(),
    }
    return Measured("us", [total(lambda _: True)], detail, [launch.name for launch in calls[-1]])


def memory(cell: Cell, request: Request) -> dict[str, Measured]:
    sequence = replace(request.size, steps=LOOP_STEPS)
    loop = make_inputs(sequence, request.dtype, request.device, seed=4)
    peak = float(peak_of_loop(cell, loop))
    return {"peak of training loop": Measured("bytes", [[peak]], {"steps": float(LOOP_STEPS)})}


def training_loop(cell: Cell, x: Tensor, state: State) -> None:
    for x_t in x.unbind(0):
        state = cell.call(x_t, state)
    torch.stack([s.sum() for s in state]).sum().backward()


def peak_of_loop(cell: Cell, inputs: Inputs) -> int:
    """The most bytes that the loop over `inputs.x` (T, B, I) holds beyond those held before it."""
    x, state = inputs.detached(requires_grad=False)
    state = tuple(s[0] for s in state)  # a step's state has no dimension of layers
    cell.module.zero_grad(set_to_none=True)
    training_loop(cell, x[:2], state)  # warm-up: allocates workspaces and library handles
    cell.module.zero_grad(set_to_none=True)
    if x.is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        training_loop(cell, x, state)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    else:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            training_loop(cell, x, state)
        events: Any = profiler.profiler.kineto_results.events()
        changes = (e for e in events if (e.name(), e.device_type().name) == ("[memory]", "CPU"))
        in_order = sorted(changes, key=lambda change: change.start_ns())
        peak = max(accumulate(change.nbytes() for change in in_order))
    cell.module.zero_grad(set_to_none=True)
    return peak


PROFILES = {"memory": memory, "kernels": kernels}
