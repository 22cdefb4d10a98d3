"""The benchmarks' timing: contenders in turn, every round kept, no disturbance counted."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import profiles, timing
from benchmarks.baselines.cells import plain_cell
from benchmarks.contender import Request, Unavailable, make_inputs
from benchmarks.schema import Size

STEP = Size(2, 3, 4)


def test_contenders_take_turns_and_every_round_is_kept() -> None:
    calls: list[str] = []

    def run_as(name: str) -> timing.Run:
        def run(n: int) -> timing.Samples:
            calls.append(name)
            return {"forward": [float(len(calls))] * n}

        return run

    measured = timing.interleave({"a": run_as("a"), "b": run_as("b")}, seconds=1e-3, rounds=6)
    assert {name: len(metrics["forward"].rounds) for name, metrics in measured.items()} == {
        "a": 6,
        "b": 6,
    }
    turns = calls[-12:]
    assert all(set(turns[i : i + 2]) == {"a", "b"} for i in range(0, 12, 2))
    assert len({tuple(turns[i : i + 2]) for i in range(0, 12, 2)}) == 2, "always the same order"


def test_the_first_iterations_of_a_turn_are_not_counted() -> None:
    def run(n: int) -> timing.Samples:
        return {"forward": [1e9] * timing.SETTLE + [1.0] * (n - timing.SETTLE)}

    measured = timing.interleave({"a": run}, seconds=1.0, rounds=2)
    assert {time for samples in measured["a"]["forward"].rounds for time in samples} == {1.0}


def test_one_interrupted_iteration_does_not_shrink_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stalls = iter([0.0, 0.0, 0.05])  # the warm call, then one that is interrupted
    clock = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: clock[0])

    def run(n: int) -> timing.Samples:
        clock[0] += next(stalls, 1e-6)
        return {"forward": [1.0] * n}

    assert timing.calibrate(run, seconds=2.0, rounds=10) == 2000


def test_the_collector_is_off_inside_and_restored() -> None:
    with pytest.raises(KeyError), timing.quiet_collector():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("protocol", "metrics"),
    [("tutorial", {"forward", "backward"}), ("split", {"forward", "backward", "inference"})],
)
def test_a_protocol_gives_a_time_for_each_iteration(
    protocol: str, metrics: set[str], device: str
) -> None:
    cell = plain_cell(Request(STEP, torch.float32, device))
    samples = timing.PROTOCOLS[protocol](cell, make_inputs(STEP, torch.float32, device, 0))(3)
    assert samples.keys() == metrics
    assert all(len(times) == 3 and min(times) > 0 for times in samples.values())


def test_the_tutorial_protocol_asks_for_the_parameters_gradients_alone() -> None:
    cell = plain_cell(Request(STEP, torch.float32, "cpu"))
    inputs = make_inputs(STEP, torch.float32, "cpu", 0)
    timing.tutorial(cell, inputs)(2)
    once = [p.grad.clone() for p in cell.module.parameters()]
    timing.tutorial(cell, inputs)(5)
    for parameter, expected in zip(cell.module.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, expected)  # not added up over iterations
    assert inputs.x.grad is None


def test_a_graph_is_refused_on_the_cpu() -> None:
    cell = plain_cell(Request(STEP, torch.float32, "cpu"))
    with pytest.raises(Unavailable, match="--device cuda"):
        timing.graph(cell, make_inputs(STEP, torch.float32, "cpu", 0))


def test_a_stream_is_refused_on_the_cpu() -> None:
    cell = plain_cell(Request(STEP, torch.float32, "cpu"))
    with pytest.raises(Unavailable, match="--protocol split"):
        timing.stream(cell, make_inputs(STEP, torch.float32, "cpu", 0))


@pytest.mark.cuda
def test_a_stream_hides_the_time_of_the_host() -> None:
    spin = 2_000_000  # cycles, about a millisecond: longer than the host needs for a step

    def call(x: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        time.sleep(0.0005)
        torch.cuda._sleep(spin)
        return cell.call(x, state)

    cell = plain_cell(Request(STEP, torch.float32, "cuda"))
    slow = replace(cell, call=call)
    inputs = make_inputs(STEP, torch.float32, "cuda", 0)
    apart, queued = (p(slow, inputs)(20)["forward"] for p in (timing.split, timing.stream))
    assert len(queued) == 20
    # The device catches up at first only, so most spans are shorter by what the host slept.
    assert statistics.median(queued) < statistics.median(apart) - 300


@pytest.mark.cuda
def test_a_graph_gives_times_of_forward_and_train() -> None:
    cell = plain_cell(Request(STEP, torch.float32, "cuda"))
    samples = timing.graph(cell, make_inputs(STEP, torch.float32, "cuda", 0))(2)
    assert {metric: len(times) for metric, times in samples.items()} == {"forward": 2, "train": 2}


@pytest.mark.cuda
def test_kernels_of_a_step_are_counted_and_products_told_apart() -> None:
    size = Size(64, 64, 256)
    cell = plain_cell(Request(size, torch.float32, "cuda"))
    forward = profiles.kernels(cell, Request(size, torch.float32, "cuda"))["forward"]
    # cat, the product, elu, two sigmoids, tanh, two or three products and sums of elements
    assert 6 <= forward.detail["launches"] <= 12
    assert any(profiles.GEMM.search(name) for name in forward.names)
    assert 0 < forward.detail["pointwise_us"] < statistics.median(forward.rounds[0])


def test_the_kernel_that_joins_h_and_x_is_not_counted_as_pointwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiles, "copy_rate", lambda: 1e12)
    call = [
        profiles.Launch("void lltm::pointwise_cu::copy_all<float>(lltm::Copies)", 2.0),
        profiles.Launch("gemm", 5.0),
        profiles.Launch("void lltm::pointwise_cu::forward_plane<float>()", 1.0),
    ]
    measured = profiles.of_step([call], bytes_moved=1_000_000)
    assert measured.detail["join_us"] == 2.0
    assert measured.detail["pointwise_us"] == 1.0
    assert measured.detail["fraction_of_copy"] == 1.0


def test_the_kernel_that_joins_h_and_x_has_the_name_that_is_looked_for() -> None:
    sources = (Path(__file__).parents[2] / "csrc" / "kernels" / "cuda").rglob("*.cu*")
    assert any(" copy_all(" in source.read_text(encoding="utf-8") for source in sources)
    assert profiles.JOIN.search("copy_all")
