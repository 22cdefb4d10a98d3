"""The page's table of speed follows from the stored results."""

from __future__ import annotations

import pytest

from benchmarks import speed_page


def test_the_page_holds_the_table_of_the_stored_results() -> None:
    page = speed_page.PAGE.read_text(encoding="utf-8")
    assert page == speed_page.filled(page, speed_page.table(speed_page.stored())), (
        "run: python -m benchmarks speed-page"
    )


def test_a_miss_says_what_was_aimed_at(monkeypatch) -> None:
    target = next(t for t in speed_page.TARGETS if t.against == "lstm")
    monkeypatch.setattr(speed_page, "reached", lambda *_: target.ratio - 0.5)
    assert f"(aim: {target.ratio:g}x)" in speed_page.table([])
    monkeypatch.setattr(speed_page, "reached", lambda *_: 99.0)
    assert "aim" not in speed_page.table([])


def test_what_was_not_measured_has_no_row() -> None:
    assert speed_page.table([]).count("\n") == 2


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="speed-table:begin"):
        speed_page.filled("no markers", "table")
