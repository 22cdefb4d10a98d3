"""What is stored of our fat wheel beside every torch and Python covers the matrix."""

from __future__ import annotations

import pytest
from release_places import REPO

from torchship.release.matrix import evidence
from torchship.release.matrix.platforms import FIRST
from torchship.release.matrix.schema import pair


def test_what_is_stored_covers_the_matrix_and_works(matrix) -> None:
    stored = evidence.load(REPO / evidence.results_of(FIRST))
    if stored is None:
        pytest.skip("nothing is stored: run scripts/build_all.sh verify")
    rows = {(e.torch, e.python): e for e in stored.environments}
    assert set(rows) >= {(m, p) for m in matrix.torch for p in matrix.package.pythons}
    free = {(m, p) for m in matrix.torch for p in matrix.torch[m].free_threaded}
    no = {key for key, row in rows.items() if row.state == "unsupported"}
    assert {key for key in rows if key[1].endswith("t")} <= free | no
    ran = [e for e in rows.values() if e.state == "ran"]
    assert len(ran) >= 46
    assert [e for e in rows.values() if e.state in ("failed", "rejected")] == []
    assert [(e.torch, e.python) for e in ran if not e.gradcheck or e.comparisons < 16] == []
    assert all(e.reason for e in rows.values() if e.state != "ran")
    glues = {e.torch: str(e.variant).rpartition("-")[0] for e in ran}
    stable = {m for m in matrix.torch if pair(m) >= pair(matrix.stable.target)}
    assert {m for m, glue in glues.items() if glue == "stable210"} == stable
