"""What `disturb_builds.py` stored: every run ended in a clear word, and the next made the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from measurements import disturb_builds
from measurements.disturb_builds import Disturbance, Run

RUNS = disturb_builds.stored()


@pytest.fixture
def rows() -> list[Disturbance]:
    if not RUNS:
        pytest.skip("nothing is stored: run measurements/disturb_builds.py")
    return [row for run in RUNS for row in run.rows]


def test_the_page_shows_what_is_stored() -> None:
    content = disturb_builds.PAGE.read_text(encoding="utf-8")
    assert disturb_builds.page(content, RUNS) == content


def test_the_same_command_made_the_same_bytes_after_everything(rows: list[Disturbance]) -> None:
    assert [row for row in rows if not row.is_repaired] == []


def test_every_disturbed_run_ended_in_a_clear_word(rows: list[Disturbance]) -> None:
    # A killed one can say nothing; one that was disturbed too late may end well.
    assert [row for row in rows if row.code in (1, 2) and not row.message] == []
    assert [row for row in rows if row.message.startswith("NO CLEAR WORD")] == []
    assert {row.code for row in rows} <= {-9, 0, 1, 2}


def checkout(folder: Path, output: str) -> disturb_builds.Checkout:
    root = folder / "disk" / "lltm"
    root.mkdir(parents=True)
    disturbed = disturb_builds.Checkout(root, command=(), commit="")
    disturbed.beside("output").write_text(output)
    return disturbed


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("done env\nerror: no room; free some\nbye\n", "error: no room; free some"),
        ("Traceback (most recent call last):\n  x\nOSError: full\n", "NO CLEAR WORD: Trac"),
        ("OSError: [Errno 28]\n", "NO CLEAR WORD: OSError"),
        ("one\n\nlast\n\n", "last"),
        ("", ""),
    ],
)
def test_the_word_of_a_run_is_found(output: str, message: str, tmp_path: Path) -> None:
    last_message = checkout(tmp_path, output).message()
    assert last_message.startswith(message) and bool(last_message) == bool(message)


def run_of(row: Disturbance) -> Run:
    return Run(
        command="c",
        cells=["host"],
        commit="f" * 40,
        date="today",
        machine="a machine",
        seconds=1,
        files=9,
        rows=[row],
    )


KILL = Disturbance(kind="kill -9", code=-9, message="")


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (KILL, "| kill -9: `host` | 1 | nothing (exit code -9) | the same bytes: 1 of 1 |"),
        (replace(KILL, next_code=1), "the same bytes: 0 of 1 |"),
        (replace(KILL, code=0, message="the report: /x"), "| it ended well (exit code 0) |"),
        (replace(KILL, changed_files=["dist/a.whl"]), "the same bytes: 0 of 1 |"),
        (
            replace(KILL, changed_files=["dist/channel/linux-64/a.conda"]),
            "the same bytes: 0 of 1 |",
        ),
        (
            replace(KILL, changed_files=["dist/channel/noarch/repodata.json"]),
            "the same bytes: 1 of 1 |",
        ),
        (
            replace(KILL, message="error: 12 MB are free in /a/b", code=2),
            "error: … MB are free in … (exit",
        ),
    ],
)
def test_the_table_says_what_was_seen(row: Disturbance, line: str) -> None:
    assert line in disturb_builds.table([run_of(row)])


def test_a_kind_that_is_disturbed_again_takes_the_old_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(disturb_builds.BEGIN + disturb_builds.END)
    monkeypatch.setattr(disturb_builds, "RESULTS", tmp_path / "results.json.xz")
    monkeypatch.setattr(disturb_builds, "PAGE", page)
    old = replace(KILL, message="old")
    full = replace(KILL, kind="full disk")
    new = replace(KILL, message="new")
    for row in (old, full, new):
        disturb_builds.store(run_of(row))
    rows = [(row.kind, row.message) for run in disturb_builds.stored() for row in run.rows]
    assert rows == [("full disk", ""), ("kill -9", "new")]
    assert "new" in page.read_text() and "old" not in page.read_text()
