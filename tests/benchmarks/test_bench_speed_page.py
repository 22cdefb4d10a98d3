"""The page's table of speed follows from the stored results."""

from __future__ import annotations

import pytest
from bench_samples import report, result

from benchmarks import speed_page, targets
from benchmarks.schema import Machine


def test_the_page_holds_the_table_of_the_stored_results() -> None:
    page = speed_page.PAGE.read_text(encoding="utf-8")
    assert page == speed_page.filled(page, speed_page.speed_table(speed_page.stored())), (
        "run: python -m benchmarks speed-page"
    )


def test_the_table_is_of_one_commit_and_one_machine() -> None:
    reports = speed_page.stored()
    assert len({stored.software.commit for stored in reports}) == 1
    assert len({stored.machine.cpu for stored in reports}) == 1
    assert len({stored.machine.gpu for stored in reports if stored.device == "cuda"}) == 1


def test_a_miss_says_what_was_aimed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    target = next(t for t in targets.TARGETS if t.against == "lstm" and t.metric == "forward")
    missed = targets.Reached(target.ratio - 0.5, report())
    monkeypatch.setattr(speed_page, "TARGETS", (target,))
    monkeypatch.setattr(speed_page, "reached", lambda *_: missed)
    table = speed_page.speed_table([])
    assert f"(aim: {target.ratio:g}x)" in table
    assert "Missed aims, 1 of 1:" in table
    monkeypatch.setattr(speed_page, "reached", lambda *_: missed._replace(ratio=99.0))
    assert "aim" not in speed_page.speed_table([])


def test_the_table_names_the_gpu_that_was_measured() -> None:
    machine = Machine("a processor", 2, "AVX2", 0.1, "Linux 6.1", gpu="NVIDIA H100 80GB HBM3")
    times = (result("cuda", [6.0]), result("ours", [1.0]))
    measured = report(*times, device="cuda", machine=machine)
    assert "| one step | H100 | B16 I32 S128 | float32 |" in speed_page.speed_table([measured])


def test_what_was_not_measured_has_no_row() -> None:
    assert speed_page.speed_table([]).count("\n") == 2


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="not found"):
        speed_page.filled("no markers", "table")
