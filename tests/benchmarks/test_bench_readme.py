"""README's table of speed follows from the stored results."""

from __future__ import annotations

import pytest

from benchmarks import readme


def test_readme_holds_the_table_of_the_stored_results() -> None:
    page = readme.README.read_text(encoding="utf-8")
    assert page == readme.filled(page, readme.table(readme.stored())), (
        "run: python -m benchmarks readme"
    )


def test_a_miss_says_what_was_aimed_at(monkeypatch) -> None:
    target = next(t for t in readme.TARGETS if t.against == "lstm")
    monkeypatch.setattr(readme, "reached", lambda *_: target.ratio - 0.5)
    assert f"(aim: {target.ratio:g}x)" in readme.table([])
    monkeypatch.setattr(readme, "reached", lambda *_: 99.0)
    assert "aim" not in readme.table([])


def test_what_was_not_measured_has_no_row() -> None:
    assert readme.table([]).count("\n") == 2


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="speed-table:begin"):
        readme.filled("no markers", "table")
