"""Random calls of layers on two streams at once, each result held against the first, bit by bit.

It draws a pool of layers, so many for every family of CUDA kernels and for the loop over steps,
forces its family on each, and holds the first results against the loop in float64. Then it
calls random ones, forward and backward, on two streams: so many are queued on each behind a
gate, and run when it opens. Differences are counted on the device. The last line it prints is
a JSON object. The exit status is not 0 if a result was off at first or differed later, if the
streams hardly overlapped, if memory was lost, or if a call did not end.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from layer_cases import RESULTS, TOLERANCE, Case, leaves, names, run
from op_cases import SMALLEST_SCALE, gradients, like
from torch import Tensor

import lltm_conda

PER_FAMILY = 25
STATES = {
    "registers": (1, 7, 32, 64, 100, 128),
    "cluster": (32, 64, 96, 128, 200, 256, 384, 512),
    "grid": (8, 64, 128, 256, 512, 1024, 1544, 2048, 2200),
    "gemm": (1, 33, 128, 520),
}
BATCHES = (1, 2, 5, 16, 33, 64, 130)
FEATURES = (1, 8, 33, 128)
SHORT, LONG = (1, 2, 3, 7, 16), (100, 257)
LONG_SHARE = {"gemm": 0.0}  # its host time would be most of the soak
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST = 2_000_000  # elements of an output
STREAMS = 2
QUEUED = 8  # calls on a stream, behind the gate: fewer kernels than the driver queues
GATE = 100_000_000  # cycles: longer than it takes to queue them
NO_PROGRESS = 60.0  # seconds
LEAST_OVERLAP = 0.4
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


Tensors = tuple[Tensor, ...]


class Call(NamedTuple):
    """A layer, its inputs, and the gradients of its outputs."""

    layer: lltm_conda.LLTMLayer
    inputs: Tensors
    incoming: Tensors

    def results(self) -> Tensors:
        """The outputs, then the gradients."""
        outputs = run(self.layer, *self.inputs)
        leaf_tensors = leaves(self.layer, self.inputs)
        return (*outputs, *gradients(outputs, leaf_tensors, self.incoming))


class Problem(NamedTuple):
    """A call on the device, how it is forced, and what came out the first time."""

    title: str
    family: str
    tf32: bool
    case: Case
    call: Call
    bits: Tensor


class Wrong(Exception):
    """What the soak found."""


@contextmanager
def forced(family: str, *, tf32: bool) -> Iterator[None]:
    """Only what one thread calls is forced so: the environment belongs to the process."""
    os.environ["LLTM_LAYER_KERNELS"] = family
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        del os.environ["LLTM_LAYER_KERNELS"]


def bits_of(tensors: Tensors) -> Tensor:
    """The bits of all tensors, in a row."""
    bits = BITS[tensors[0].element_size()]
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).view(bits)


def converted(case: Case, call: Call, dtype: torch.dtype) -> Call:
    """The same call in another dtype."""
    layer = case.layer(device=call.inputs[0].device, dtype=dtype)
    layer.load_state_dict(call.layer.state_dict())
    return Call(
        layer=layer,
        inputs=tuple(t.detach().to(dtype).requires_grad_() for t in call.inputs),
        incoming=tuple(t.to(dtype) for t in call.incoming),
    )


def errors(results: Tensors, exact: Tensors) -> list[float]:
    """The relative norm of each difference; not a number counts as infinite."""
    relative = []
    for result, reference in zip(results, exact, strict=True):
        scale = reference.norm().clamp_min(SMALLEST_SCALE * reference.numel() ** 0.5)
        relative.append((result.detach().double() - reference.detach()).norm() / scale)
    numbers: list[float] = torch.stack(relative).nan_to_num(nan=float("inf")).tolist()
    return numbers


def check_first(problem: Problem, first: Tensors) -> None:
    """Within the dtype's tolerance of float64, or as near as the loop over steps in that dtype."""
    call = problem.call
    # Products in tf32 have the mantissa of float16.
    dtype = torch.float16 if problem.tf32 else call.inputs[0].dtype
    with forced("gemm", tf32=False):
        exact = converted(problem.case, call, torch.float64).results()
        yardstick = errors(converted(problem.case, call, dtype).results(), exact)
    result_names = (*RESULTS, *names(call.layer, call.inputs))
    for name, error, own in zip(result_names, errors(first, exact), yardstick, strict=True):
        allowed = max(TOLERANCE[dtype], 2 * own)
        if not error <= allowed:
            raise Wrong(f"{problem.title}: {name} is off by {error:.2e}, allowed is {allowed:.2e}")


def draw_problem(source: random.Random, family: str, device: torch.device) -> Problem | None:
    """A random problem for `family`, checked; None where it cannot run what was drawn."""
    steps = LONG if source.random() < LONG_SHARE.get(family, 0.4) else SHORT
    case = Case(
        source.choice(steps),
        source.choice(BATCHES),
        source.choice(FEATURES),
        source.choice(STATES[family]),
        bidirectional=source.random() < 0.2,
        bias=source.random() < 0.8,
        given_state=source.random() < 0.5,
    )
    dtype = source.choice((*DTYPES, torch.float64) if family == "gemm" else DTYPES)
    tf32 = dtype == torch.float32 and source.random() < 0.5
    seed = source.randrange(2**31)
    if case.steps * case.batch * case.state > LARGEST:
        return None
    torch.manual_seed(seed)
    layer = case.layer(device=device, dtype=dtype)
    inputs = case.inputs(layer, seed)
    try:
        with forced(family, tf32=tf32):
            call = Call(layer, inputs, incoming=like(run(layer, *inputs), seed))
            first = call.results()
    except RuntimeError as refusal:
        if "LLTM_LAYER_KERNELS" not in str(refusal):
            raise
        return None
    title = f"{family} {case} {dtype}{' tf32' if tf32 else ''}"
    problem = Problem(
        title=title, family=family, tf32=tf32, case=case, call=call, bits=bits_of(first)
    )
    check_first(problem, first)
    return problem


def draw_pool(
    source: random.Random, device: torch.device, families: tuple[str, ...]
) -> list[Problem]:
    pool: list[Problem] = []
    for family in families:
        mine: list[Problem] = []
        for _ in range(40 * PER_FAMILY):
            problem = draw_problem(source, family, device)
            mine += [] if problem is None else [problem]
            if len(mine) == PER_FAMILY:
                break
        if len(mine) < PER_FAMILY:
            raise Wrong(f"the family {family} ran only {len(mine)} of the problems drawn for it")
        pool += mine
    return pool


class Lane:
    """One stream: what was queued on it and has not ended, and when what has ended did."""

    def __init__(self, device: torch.device, origin: torch.cuda.Event, problems: int) -> None:
        self.stream = torch.cuda.Stream(device)
        self.different = torch.zeros(problems, dtype=torch.int64, device=device)
        self.spans: list[tuple[float, float]] = []
        self._origin = origin
        self._queued: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()

    def call(self, index: int, problem: Problem) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream), forced(problem.family, tf32=problem.tf32):
            begin.record()
            results = problem.call.results()
            end.record()
            self.different[index] += (bits_of(results) != problem.bits).any()
        self._queued.append((problem.title, begin, end))

    def wait(self) -> None:
        """Until every call has ended; asks, and never blocks."""
        last = time.monotonic()
        while self._queued:
            title, begin, end = self._queued[0]
            if end.query():
                started = self._origin.elapsed_time(begin)
                ended = self._origin.elapsed_time(end)
                self.spans.append((started, ended))
                self._queued.popleft()
                last = time.monotonic()
            elif time.monotonic() - last > NO_PROGRESS:
                print(f"no call has ended for {NO_PROGRESS:.0f} s: waiting for {title}", flush=True)
                os._exit(3)  # whatever waits for the device would wait for ever
            else:
                time.sleep(1e-4)


def overlap(lanes: list[Lane]) -> float:
    """How much of the time in which a call ran on one stream, one ran on the other as well."""
    left, right = (lane.spans for lane in lanes)
    both = 0.0
    i = j = 0
    while i < len(left) and j < len(right):
        both += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return both / (sum(end - begin for begin, end in [*left, *right]) - both)


class Bursts:
    """Queues the same calls on all lanes behind a gate, and lets them run together."""

    def __init__(self, source: random.Random, pool: list[Problem], device: torch.device) -> None:
        origin = torch.cuda.Event(enable_timing=True)
        origin.record()
        self.lanes = [Lane(device, origin, len(pool)) for _ in range(STREAMS)]
        self._gate = torch.cuda.Stream(device)
        self._source = source
        self._pool = pool
        torch.cuda.synchronize()

    def warm_up(self) -> None:
        """Call every problem on every lane: what libraries keep for each stream is there then."""
        for lane in self.lanes:
            for index, problem in enumerate(self._pool):
                lane.call(index, problem)
                lane.wait()
            lane.spans.clear()

    def run(self, indices: list[int]) -> None:
        with torch.cuda.stream(self._gate):
            torch.cuda._sleep(GATE)
        for lane in self.lanes:
            lane.stream.wait_stream(self._gate)
        # The same calls, each stream in an order of its own, so that both end together.
        orders = [self._source.sample(indices, len(indices)) for _ in self.lanes]
        for turn in zip(*orders, strict=True):
            for lane, index in zip(self.lanes, turn, strict=True):
                lane.call(index, self._pool[index])
        for lane in self.lanes:
            lane.wait()

    def count_different(self) -> list[int]:
        """How many calls of each problem differed from the first."""
        counts: list[int] = torch.stack([lane.different for lane in self.lanes]).sum(0).tolist()
        return counts


def soak(calls: int, seed: int, families: tuple[str, ...]) -> None:
    device = torch.device("cuda", 0)
    source = random.Random(seed)
    began = time.monotonic()
    pool = draw_pool(source, device, families)
    bursts = Bursts(source, pool, device)
    bursts.warm_up()
    gc.collect()
    before = torch.cuda.memory_allocated(device)
    seconds_drawing = time.monotonic() - began
    began = time.monotonic()
    done: Counter[str] = Counter()
    while (left := calls - done.total()) > 0:
        indices = source.choices(range(len(pool)), k=min(QUEUED, -(-left // STREAMS)))
        bursts.run(indices)
        done.update(pool[index].family for index in STREAMS * indices)
    gc.collect()
    seconds = time.monotonic() - began
    lost = torch.cuda.memory_allocated(device) - before
    different = bursts.count_different()
    together = overlap(bursts.lanes)
    report = {
        "calls": done.total(),
        "by_family": dict(done),
        "problems": len(pool),
        "seed": seed,
        "seconds_drawing": round(seconds_drawing, 1),
        "seconds_calling": round(seconds, 1),
        "overlap": round(together, 3),
        "different": sum(different),
        "bytes_lost": lost,
    }
    print(json.dumps(report), flush=True)
    for problem, count in zip(pool, different, strict=True):
        if count:
            raise Wrong(f"{problem.title}: {count} calls differed from the first")
    if lost:
        raise Wrong(f"{lost} bytes of the device are in use that were not before")
    if together < LEAST_OVERLAP:
        raise Wrong(f"calls ran on both streams for {together:.0%} of the time only")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--families", nargs="+", default=[*STATES], choices=[*STATES])
    arguments = parser.parse_args()
    try:
        soak(arguments.calls, arguments.seed, tuple(arguments.families))
    except Wrong as what:
        print(what, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
