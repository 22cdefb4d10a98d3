"""What `disturb_builds.py` stored: every run ended in a clear word, and the next made the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("disturb_builds.py")
spec = importlib.util.spec_from_file_location("disturb_builds", PROGRAM)
disturb_builds = importlib.util.module_from_spec(spec)
spec.loader.exec_module(disturb_builds)

RUNS = disturb_builds.stored()


@pytest.fixture
def rows() -> list[dict[str, object]]:
    if not RUNS:
        pytest.skip(f"nothing is stored: run tests/release/{PROGRAM.name}")
    return [row for run in RUNS for row in run["rows"]]


def test_the_page_shows_what_is_stored() -> None:
    page = disturb_builds.PAGE.read_text(encoding="utf-8")
    assert disturb_builds.page(page, RUNS) == page


def test_the_same_command_made_the_same_bytes_after_everything(rows) -> None:
    assert [row for row in rows if row["again"] or disturb_builds.changed(row)] == []


def test_every_disturbed_run_ended_in_a_clear_word(rows) -> None:
    # A killed one can say nothing; one that was disturbed too late may end well.
    assert [row for row in rows if row["code"] in (1, 2) and not row["said"]] == []
    assert [row for row in rows if row["said"].startswith("NO CLEAR WORD")] == []
    assert {row["code"] for row in rows} <= {-9, 0, 1, 2}


def checkout(folder: Path, content: str) -> disturb_builds.Checkout:
    result = object.__new__(disturb_builds.Checkout)
    result.root = folder / "disk" / "lltm"
    result.root.mkdir(parents=True)
    result.beside("said").write_text(content)
    return result


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("done env\nerror: no room; free some\nbye\n", "error: no room; free some"),
        ("Traceback (most recent call last):\n  x\nOSError: full\n", "NO CLEAR WORD: Trac"),
        ("OSError: [Errno 28]\n", "NO CLEAR WORD: OSError"),
        ("one\n\nlast\n\n", "last"),
        ("", ""),
    ],
)
def test_the_word_of_a_run_is_found(log, expected, tmp_path) -> None:
    last_words = checkout(tmp_path, log).words()
    assert last_words.startswith(expected) and bool(last_words) == bool(expected)


def run(**row: object) -> dict[str, object]:
    complete_row = {"kind": "kill -9", "code": -9, "said": "", "again": 0, "other": []} | row
    facts = {"cells": ["host"], "files": 9, "command": "c", "commit": "f" * 40, "date": "today"}
    return facts | {"rows": [complete_row]}


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({}, "| kill -9: `host` | 1 | nothing (exit code -9) | the same bytes: 1 of 1 |"),
        ({"again": 1}, "the same bytes: 0 of 1 |"),
        ({"code": 0, "said": "the report: /x"}, "| it ended well (exit code 0) |"),
        ({"other": ["dist/a.whl"]}, "the same bytes: 0 of 1 |"),
        ({"other": ["dist/channel/linux-64/a.conda"]}, "the same bytes: 0 of 1 |"),
        ({"other": ["dist/channel/noarch/repodata.json"]}, "the same bytes: 1 of 1 |"),
        ({"said": "error: 12 MB are free in /a/b", "code": 2}, "error: … MB are free in … (exit"),
    ],
)
def test_the_table_says_what_was_seen(row, line) -> None:
    assert line in disturb_builds.table([run(**row)])


def test_a_kind_that_is_disturbed_again_takes_the_old_place(tmp_path, monkeypatch) -> None:
    results = tmp_path / "results.json"
    page = tmp_path / "page.md"
    page.write_text(disturb_builds.BEGIN + disturb_builds.END)
    monkeypatch.setattr(disturb_builds, "RESULTS", results)
    monkeypatch.setattr(disturb_builds, "PAGE", page)
    for row in ({"said": "old"}, {"kind": "full disk"}, {"said": "new"}):
        disturb_builds.store(run(**row))
    stored_rows = [
        (row["kind"], row["said"]) for each in disturb_builds.stored() for row in each["rows"]
    ]
    assert stored_rows == [("full disk", ""), ("kill -9", "new")]
    assert "new" in page.read_text() and "old" not in page.read_text()
