"""The report of a benchmark: speedups paired by round, and verdicts."""

from __future__ import annotations

import dataclasses
import io

import pytest
from bench_samples import SIZE, report, result
from rich.console import Console

from benchmarks import compare, targets
from benchmarks import report as reporting
from benchmarks.schema import Report, Size


def printed(measured: Report) -> str:
    console = Console(file=io.StringIO(), width=200)
    reporting.show(measured, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_speedup_is_paired_by_round() -> None:
    # The medians alone would say 20 / 10; in every round it was 3, 3 and 2.
    baseline = result("python", [3.0, 30.0, 20.0])
    ours = result("ours", [1.0, 10.0, 10.0])
    assert compare.speedup(baseline, ours) == 3.0


@pytest.mark.parametrize(("baseline", "ratio"), [(59392.0, float("inf")), (0.0, 1.0)])
def test_nothing_kept_is_infinitely_less_than_something(baseline: float, ratio: float) -> None:
    assert compare.speedup(result("cpp", [baseline]), result("ours", [0.0])) == ratio


@pytest.mark.parametrize(
    ("ours", "slower"), [(1.0, []), (1.04, []), (1.06, ["python"]), (2.2, ["python", "cpp"])]
)
def test_the_verdict_allows_five_percent(ours: float, slower: list[str]) -> None:
    mine = result("ours", [ours] * 3)
    results = [
        result("python", [1.0] * 3),
        result("cpp", [2.0] * 3),
        mine,
        result("ours-again", [0.1] * 3),
    ]
    assert compare.slower_than(mine, results) == slower


def test_no_verdict_without_ours() -> None:
    output = printed(report(result("python", [1.0]), command="grid"))
    assert "ours not measured" in output
    assert "0 of 0 measured" in output


def test_the_grid_counts_what_is_slower() -> None:
    slow = Size(1, 4, 16)
    grid = report(
        result("python", [2.0] * 3),
        result("ours", [1.0] * 3),
        result("python", [1.0] * 3, size=slow),
        result("ours", [2.0] * 3, size=slow),
        command="grid",
    )
    output = printed(grid)
    assert "slower than python" in output
    assert "1 of 2 measured" in output


def test_the_tables_say_ratio_skip_and_door() -> None:
    output = printed(report(result("python", [30.0] * 3), result("ours", [10.0] * 3)))
    assert "3.00" in output
    assert "skipped cuda: no GPU" in output
    assert "ours did not load" in output


def target(**changes: object) -> targets.Target:
    fixed = targets.Target(
        command="cell",
        device="cpu",
        protocol="tutorial",
        size=SIZE,
        dtype="float32",
        metric="forward",
        against="cpp",
        ratio=2.5,
    )
    return dataclasses.replace(fixed, **changes)  # type: ignore[arg-type]


def ratio(target: targets.Target, reports: list[Report]) -> float | None:
    result = targets.reached(target, reports)
    return None if result is None else result.ratio


def test_a_target_is_looked_up_where_it_was_measured() -> None:
    reports = [report(result("cpp", [30.0] * 3), result("ours", [10.0] * 3))]
    assert ratio(target(), reports) == 3.0
    for other in ({"device": "cuda"}, {"metric": "backward"}, {"against": "python"}):
        assert ratio(target(**other), reports) is None


def test_forward_and_backward_are_added_up_round_by_round() -> None:
    measured = report(
        *(result("lstm", [10.0, 20.0, 30.0], metric=m) for m in ("forward", "backward")),
        result("ours", [10.0, 20.0, 30.0], metric="forward"),
        result("ours", [2.5, 5.0, 10.0], metric="backward"),
    )
    both = target(metric=targets.TRAINING, against="lstm")
    assert ratio(both, [measured]) == 20.0 / 12.5
    assert ratio(both, [report(*measured.results[:-1])]) is None


def test_threads_are_compared_between_reports_and_mixed_in_none() -> None:
    one = report(result("cpp", [30.0] * 3), result("ours", [10.0] * 3), threads=1)
    two = report(
        result("cpp", [30.0] * 3), result("ours", [8.0] * 3), threads=2, created="2026-02-01"
    )
    assert ratio(target(against=targets.ONE_THREAD), [one, two]) == 10.0 / 8.0
    assert ratio(target(against=targets.ONE_THREAD), [one]) is None
    assert ratio(target(), [one, two]) == 3.0


def test_the_newest_report_decides() -> None:
    old = report(result("cpp", [30.0] * 3), result("ours", [10.0] * 3))
    new = report(result("cpp", [20.0] * 3), result("ours", [10.0] * 3), created="2026-02-01")
    assert ratio(target(), [new, old]) == 2.0


def test_a_miss_stays_in_the_table() -> None:
    measured = report(result("cpp", [20.0] * 3), result("ours", [10.0] * 3))
    console = Console(file=io.StringIO(), width=200)
    console.print(targets.table([measured]))
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert output.count("missed") == 1
    assert "not measured" in output
