"""The protocols, which `results/README.md` defines, and the interleaving of contenders.

A protocol turns a contender into a *run*: a function that does n iterations and returns the time of
each, in microseconds, by metric.
"""

import gc
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
"""Times in microseconds, by metric."""
Run = Callable[[int], Samples]

STREAM_CALLS = 4
"""Forward calls in a row, before one backward pass through all of them."""
GRAPH_STEPS = 20
GRAPH_SEQUENCES = 2
SETTLE = 2
"""Iterations at the start of a turn that are not counted: the caches hold the data of another
contender."""


def tutorial(cell: Cell, inputs: Inputs) -> Run:
    """The tutorial's timing: forward, then backward of `new_h.sum() + new_c.sum()`."""
    timed = host_clock(finish=torch.cuda.synchronize if inputs.x.is_cuda else lambda: None)

    def backward(outputs: tuple[Tensor, ...]) -> None:
        (outputs[0].sum() + outputs[1].sum()).backward()

    return partial(_train, cell, Calls(cell, inputs).plain, backward, timed)


def split(cell: Cell, inputs: Inputs) -> Run:
    """Forward alone, backward alone (all gradients), forward without autograd."""
    calls = Calls(cell, inputs)
    timed = stopwatch(inputs.x.is_cuda, calls.steps)

    def run(n: int) -> Samples:
        samples = _train(cell, calls.forward, calls.backward, timed, n)
        samples["inference"] = []
        with torch.no_grad():
            for _ in range(n):
                cell.new_step()
                samples["inference"].append(timed(calls.plain)[0])
        return samples

    return run


def _train(cell: Cell, forward: Callable, backward: Callable, timed: Callable, n: int) -> Samples:
    samples: Samples = {"forward": [], "backward": []}
    for _ in range(n):
        cell.module.zero_grad(set_to_none=True)
        cell.new_step()
        time, outputs = timed(forward)
        samples["forward"].append(time)
        time, gradients = timed(partial(backward, outputs))
        samples["backward"].append(time)
        del outputs, gradients
    return samples


Clock = Callable[[Callable[[], Any]], tuple[float, Any]]
"""Runs an action; returns microseconds per step and the action's value."""


def host_clock(steps: int = 1, finish: Callable[[], None] = lambda: None) -> Clock:
    def timed(action: Callable[[], Any]) -> tuple[float, Any]:
        start = perf_counter_ns()
        value = action()
        finish()
        return (perf_counter_ns() - start) / 1e3 / steps, value

    return timed


def stopwatch(cuda: bool, steps: int) -> Clock:
    """The host's clock, or on a GPU the time between two events."""
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
    """Like a training loop: some calls in a row, then one backward pass, no synchronisation.

    Every call has its own inputs. The parameters are shared, so their gradients add up.
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
            cell.new_step()
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
                cell.new_step()
                for calls in row:
                    calls.plain()
                mark.record()
        return {"forward": times[::2], "backward": times[1::2], "inference": spans(marks)}

    return run


def _events(count: int) -> list[torch.cuda.Event]:
    """Events that are recorded once, since torch creates an event at its first record."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for event in events:
        event.record()
    torch.cuda.synchronize()
    return events


def graph(cell: Cell, inputs: Inputs) -> Run:
    """A step inside a CUDA graph: forward alone, and forward with backward."""
    if inputs.x.device.type != "cuda":
        raise Unavailable("CUDA graphs need a GPU: use --device cuda")
    if not cell.capturable:
        raise Unavailable("no graph captures it: it uses the default stream, or its own graphs")
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
    timed = stopwatch(True, repeats * calls.steps)

    def run(n: int) -> Samples:
        return {
            metric: [timed(replay.replay)[0] for _ in range(n)]
            for metric, (replay, _) in captured.items()
        }

    return run


def capture(
    step: Callable[[], tuple[Tensor, ...]], calls: int
) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
    """Capture this many calls; the outputs of the last one stay readable."""
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


PROTOCOLS: dict[str, Callable[[Cell, Inputs], Run]] = {
    "tutorial": tutorial,
    "split": split,
    "stream": stream,
    "graph": graph,
}


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Turns automatic garbage collection off, and makes explicit collections quick."""
    gc.collect()
    gc.freeze()  # later collections skip the objects that are alive now
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def calibrate(run: Run, seconds: float, rounds: int) -> int:
    """How many iterations of `run` fit into a round of `seconds / rounds`, at least one.

    The quickest of a few iterations decides, since interruptions slow some of them.
    """
    run(SETTLE + 1)  # warm-up: allocator, autograd, libraries that choose an algorithm
    quickest = float("inf")
    for _ in range(3):
        start = perf_counter()
        run(1)
        quickest = min(quickest, perf_counter() - start)
    return max(1, min(2000, int(seconds / rounds / max(quickest, 1e-7)) - SETTLE))


def interleave(
    runs: Mapping[str, Run], seconds: float, rounds: int, seed: int = 0
) -> dict[str, dict[str, Measured]]:
    """Measure all runs in turn, `rounds` times, for about `seconds` each in total."""
    rng = random.Random(seed)
    counts = {name: calibrate(run, seconds, rounds) for name, run in runs.items()}
    measured: dict[str, dict[str, Measured]] = {name: {} for name in runs}
    with quiet_collector():
        for _ in range(rounds):
            order = list(runs)
            rng.shuffle(order)
            for name in order:
                settle = SETTLE if counts[name] > 1 else 0
                for metric, samples in runs[name](settle + counts[name]).items():
                    found = measured[name].setdefault(metric, Measured("us", [], {}))
                    found.rounds.append(samples[settle:])
            gc.collect()
    return measured
