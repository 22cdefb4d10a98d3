"""The table of this op's glues beside every torch, which was measured, and what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lltm_conda.engine.judge.layouts import LAYOUTS
from lltm_conda.engine.judge.records import dotted
from measurements.pair_table import table as pair_table
from measurements.pair_table.table import PairTable


@pytest.fixture(scope="module")
def table() -> PairTable:
    return pair_table.load()


def test_the_pair_table_is_complete(table: PairTable) -> None:
    minors = [dotted(minor) for minor in sorted(LAYOUTS)]
    assert table.minors == minors
    pairs = {(re.sub(r"-abi.", "", pair.glue), pair.torch) for pair in table.cells}
    rows = [f"aten{minor.replace('.', '')}" for minor in minors] + ["stable210"]
    assert pairs == {(row, minor) for row in rows for minor in minors}


def test_no_pair_was_accepted_that_does_not_work(table: PairTable) -> None:
    assert [pair for pair in table.cells if pair.accepted and not pair.works] == []


def test_at_most_one_working_pair_in_five_was_refused_each_with_a_reason(
    table: PairTable,
) -> None:
    working = [pair for pair in table.cells if pair.works and pair.glue.startswith("aten")]
    refused = [pair for pair in working if not pair.accepted]
    assert 5 * len(refused) <= len(working)
    assert all(pair.reason for pair in refused)


def test_the_stable_glue_was_predicted_everywhere(table: PairTable) -> None:
    pairs = [pair for pair in table.cells if pair.glue.startswith("stable")]
    assert all(pair.accepted == pair.works for pair in pairs)


def test_the_stored_table_reads_back(
    table: PairTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_table, "PATH", tmp_path / "pairs.json.xz")
    pair_table.save(table)
    assert pair_table.load() == table
