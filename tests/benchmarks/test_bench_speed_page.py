"""The page's table of speed follows from the stored results."""

from __future__ import annotations

import pytest

from benchmarks import targets


def test_the_page_holds_the_table_of_the_stored_results() -> None:
    page = targets.PAGE.read_text(encoding="utf-8")
    assert page == targets.filled(page, targets.speed_table(targets.stored())), (
        "run: python -m benchmarks speed-page"
    )


def test_a_miss_says_what_was_aimed_at(monkeypatch) -> None:
    target = next(t for t in targets.TARGETS if t.against == "lstm")
    monkeypatch.setattr(targets, "reached", lambda *_: target.ratio - 0.5)
    assert f"(aim: {target.ratio:g}x)" in targets.speed_table([])
    monkeypatch.setattr(targets, "reached", lambda *_: 99.0)
    assert "aim" not in targets.speed_table([])


def test_what_was_not_measured_has_no_row() -> None:
    assert targets.speed_table([]).count("\n") == 2


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="not found"):
        targets.filled("no markers", "table")
