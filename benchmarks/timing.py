"""The timing protocols, which `measurements/README.md` defines, and the interleaving of contenders.

A protocol turns a contender into a *run*: a function that does n iterations and returns, for
each metric, the time of every iteration in microseconds per step.
"""

import gc
import random
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import perf_counter, perf_counter_ns
from typing import Any

import torch
from torch import Tensor

from .check import check
from .contender import Calls, Cell, Inputs, Unavailable
from .schema import Measured

Samples = dict[str, list[float]]
"""Microseconds per step of each iteration, by metric."""
Run = Callable[[int], Samples]

STREAM_CALLS = 4
"""Forward calls in a row, before one backward pass through all of them."""
GRAPH_STEPS = 20
GRAPH_SEQUENCES = 2
SETTLE = 2
"""If a turn counts two or more iterations, this many run before them, uncounted, to fill caches."""


def tutorial(cell: Cell, inputs: Inputs) -> Run:
    """Times forward, then backward of `new_h.sum() + new_c.sum()`, as the tutorial does."""
    clock = host_clock(finish=torch.cuda.synchronize if inputs.x.is_cuda else lambda: None)

    def backward(outputs: Outputs) -> None:
        (outputs[0].sum() + outputs[1].sum()).backward()

    return Training(cell, Calls(cell, inputs).plain, backward, clock).run


def split(cell: Cell, inputs: Inputs) -> Run:
    """Times forward, backward (all gradients) and forward without autograd, each alone."""
    training = _training(cell, inputs)
    plain = Calls(cell, inputs).plain

    def run(n: int) -> Samples:
        samples = training.run(n)
        with torch.no_grad():
            samples["inference"] = [training.clock(plain)[0] for _ in range(n)]
        return samples

    return run


def both_passes(cell: Cell, inputs: Inputs) -> Run:
    """Times forward and backward as `split` does."""
    return _training(cell, inputs).run


def _training(cell: Cell, inputs: Inputs) -> "Training":
    calls = Calls(cell, inputs)
    clock = stopwatch(cuda=inputs.x.is_cuda, steps=calls.steps)
    return Training(cell, calls.forward, calls.backward, clock)


Outputs = tuple[Tensor, ...]
Clock = Callable[[Callable[[], Any]], tuple[float, Any]]
"""Runs an action, and returns microseconds per step and the action's value."""


@dataclass(frozen=True)
class Training:
    """The two passes of a training step, and the clock that times each."""

    cell: Cell
    forward: Callable[[], Outputs]
    backward: Callable[[Outputs], object]
    clock: Clock

    def run(self, n: int) -> Samples:
        samples: Samples = {"forward": [], "backward": []}
        for _ in range(n):
            self.cell.module.zero_grad(set_to_none=True)
            time, outputs = self.clock(self.forward)
            samples["forward"].append(time)
            time, gradients = self.clock(partial(self.backward, outputs))
            samples["backward"].append(time)
            del outputs, gradients
        return samples


def host_clock(steps: int = 1, finish: Callable[[], None] = lambda: None) -> Clock:
    def timed(action: Callable[[], Any]) -> tuple[float, Any]:
        start = perf_counter_ns()
        value = action()
        finish()
        return (perf_counter_ns() - start) / 1e3 / steps, value

    return timed


def stopwatch(*, cuda: bool, steps: int) -> Clock:
    """A clock that measures the host's time or, for CUDA, the time between two events."""
    if not cuda:
        return host_clock(steps)
    before, after = _events(2)

    def timed(action: Callable[[], Any]) -> tuple[float, Any]:
        torch.cuda.synchronize()
        before.record()
        value = action()
        after.record()
        torch.cuda.synchronize()
        return before.elapsed_time(after) * 1e3 / steps, value

    return timed


def stream(cell: Cell, inputs: Inputs) -> Run:
    """Times a training loop (calls in a row, one backward pass), then calls without autograd.

    Nothing synchronises within a loop. Every call has input leaves of its own. All calls
    share the parameters, whose gradients add up.
    """
    if inputs.x.device.type != "cuda":
        raise Unavailable("a CPU has no stream: use --protocol split, or --device cuda")
    row = [Calls(cell, inputs) for _ in range(STREAM_CALLS)]
    sources = list(dict.fromkeys(leaf for calls in row for leaf in calls.leaves))
    cotangents = row[0].cotangents * STREAM_CALLS
    steps = row[0].steps * STREAM_CALLS

    def spans(marks: list[torch.cuda.Event]) -> list[float]:
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 / steps for begin, end in pairwise(marks)]

    def run(n: int) -> Samples:
        marks = _events(2 * n + 1)
        marks[0].record()
        for i in range(n):
            outputs = [output for calls in row for output in calls.forward()]
            marks[2 * i + 1].record()
            gradients = torch.autograd.grad(outputs, sources, cotangents)
            marks[2 * i + 2].record()
            del outputs, gradients
        times = spans(marks)
        with torch.no_grad():
            marks = marks[: n + 1]
            marks[0].record()
            for mark in marks[1:]:
                for calls in row:
                    calls.plain()
                mark.record()
        return {"forward": times[::2], "backward": times[1::2], "inference": spans(marks)}

    return run


def _events(count: int) -> list[torch.cuda.Event]:
    """New events, each recorded once: torch creates the CUDA event only at the first record."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for event in events:
        event.record()
    torch.cuda.synchronize()
    return events


def graph(cell: Cell, inputs: Inputs) -> Run:
    """Times a step or a sequence inside a CUDA graph: forward alone, and forward with backward."""
    if inputs.x.device.type != "cuda":
        raise Unavailable("CUDA graphs need a GPU: use --device cuda")
    if not cell.capturable:
        raise Unavailable("it runs on the legacy default stream, which no graph captures")
    calls = Calls(cell, inputs)
    forward = torch.no_grad()(calls.plain)

    def train() -> tuple[Tensor, ...]:
        outputs = calls.forward()
        calls.backward(outputs)
        return tuple(o.detach() for o in outputs)

    repeats = GRAPH_STEPS if calls.steps == 1 else GRAPH_SEQUENCES
    captured = {"forward": capture(forward, repeats), "train": capture(train, repeats)}
    for replay, outputs in captured.values():
        for output in outputs:
            output.fill_(float("nan"))
        replay.replay()
        torch.cuda.synchronize()
        check(cell, inputs, input_gradients=False, outputs=outputs)
    clock = stopwatch(cuda=True, steps=repeats * calls.steps)

    def run(n: int) -> Samples:
        return {
            metric: [clock(replay.replay)[0] for _ in range(n)]
            for metric, (replay, _) in captured.items()
        }

    return run


def capture(
    step: Callable[[], tuple[Tensor, ...]], calls: int
) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
    """Capture `calls` calls of `step`. Returns the graph and the last call's outputs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        for _ in range(calls):
            outputs = step()
    return recorded, outputs


PROTOCOLS = {protocol.__name__: protocol for protocol in (tutorial, split, stream, graph)}


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Switch automatic garbage collection off, and make explicit collections quick."""
    gc.collect()
    gc.freeze()  # later collections skip the objects that are alive now
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def calibrate(run: Run, seconds: float, rounds: int) -> int:
    """How many counted iterations of `run` fit into a round of `seconds / rounds`, from 1 to 2000.

    The quickest of three iterations decides, because an interruption may slow the others.
    """
    run(SETTLE + 1)  # warm-up: allocator, autograd, libraries that choose an algorithm
    quickest = min(timeit.repeat(partial(run, 1), timer=perf_counter, repeat=3, number=1))
    return max(1, min(2000, int(seconds / rounds / max(quickest, 1e-7)) - SETTLE))


def interleave(
    runs: Mapping[str, Run], seconds: float, rounds: int, seed: int = 0
) -> dict[str, dict[str, Measured]]:
    """Measure all runs `rounds` times, in random order, for about `seconds` each in total."""
    rng = random.Random(seed)
    counts = {name: calibrate(run, seconds, rounds) for name, run in runs.items()}
    measured: dict[str, dict[str, Measured]] = {name: {} for name in runs}
    with quiet_collector():
        for _ in range(rounds):
            for name in rng.sample(list(runs), len(runs)):
                settle = SETTLE if counts[name] > 1 else 0
                for metric, samples in runs[name](settle + counts[name]).items():
                    of_metric = measured[name].setdefault(metric, Measured("us", [], {}))
                    of_metric.rounds.append(samples[settle:])
            gc.collect()
    return measured
