"""The table of this op's glues beside every torch, which was measured, and what it promises."""

from __future__ import annotations

import re

from lltm_conda.engine.judge.reading.layouts import LAYOUTS
from lltm_conda.engine.judge.records import dotted
from measurements.pair_table import table as pair_table


def test_the_pair_table_is_whole_and_keeps_the_promise() -> None:
    """No pair was accepted that does not work, and few were refused that do."""
    table = pair_table.load()
    minors = [dotted(minor) for minor in sorted(LAYOUTS)]
    assert table.minors == minors
    pairs = {(re.sub(r"-abi.", "", pair.glue), pair.torch) for pair in table.cells}
    rows = [f"aten{minor.replace('.', '')}" for minor in minors] + ["stable210"]
    assert pairs == {(row, minor) for row in rows for minor in minors}
    assert [pair for pair in table.cells if pair.accepted and not pair.works] == []
    refused = [pair for pair in table.cells if pair.works and not pair.accepted]
    assert [pair for pair in refused if pair.glue.startswith("stable") or not pair.reason] == []
    assert 5 * len(refused) <= sum(p.works for p in table.cells if p.glue.startswith("aten"))
