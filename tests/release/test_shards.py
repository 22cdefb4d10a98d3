"""Shards: every cell in exactly one, the same on every machine, of about equal cost."""

from __future__ import annotations

import pytest
from release import ReleaseError, shards
from release.cells import all_cells
from release.shards import costs, load, parse_shard, split


@pytest.mark.parametrize("count", [1, 2, 3, 8, 40])
def test_every_cell_is_in_exactly_one_shard(count, matrix) -> None:
    cells = all_cells(matrix)
    found = split(cells, count)
    assert len(found) == count
    assert sorted(c.name for shard in found for c in shard) == sorted(c.name for c in cells)


def test_the_split_does_not_depend_on_the_order(matrix) -> None:
    cells = all_cells(matrix)
    other = split(list(reversed(cells)), 4)
    found = [{c.name for c in shard} for shard in split(cells, 4)]
    assert [{c.name for c in shard} for shard in other] == found


@pytest.mark.parametrize("count", [2, 4, 8])
def test_no_shard_costs_much_more_than_another(count, matrix) -> None:
    loads = [load(shard) for shard in split(all_cells(matrix), count)]
    dearest = max(load([cell]) for cell in all_cells(matrix))
    assert max(loads) - min(loads) <= dearest


def test_costly_cells_are_spread_first(matrix, monkeypatch) -> None:
    cells = all_cells(matrix)[:11]
    prices = {cell.name: 10.0 for cell in cells} | {cells[5].name: 100.0}
    monkeypatch.setattr(shards, "costs", lambda cell: {cell.name: prices[cell.name]})
    assert [load(shard) for shard in split(cells, 2)] == [100.0, 100.0]


def test_what_cells_share_is_counted_once(matrix) -> None:
    cells = {c.name: c for c in all_cells(matrix)}
    pair = [cells["aten29-abi1-cpu"], cells["aten29-abi1-cu12"]]
    shared = set(costs(pair[0])) & set(costs(pair[1]))
    assert {"glue aten29-abi1", "kernels cpu"} <= shared
    assert load(pair) < sum(load([cell]) for cell in pair)


def test_a_shard_is_read() -> None:
    assert parse_shard("2/8") == (2, 8)


@pytest.mark.parametrize("text", ["0/8", "9/8", "2", "2/0", "a/b", "-1/2", "2/8/3", ""])
def test_what_is_no_shard_is_refused(text) -> None:
    with pytest.raises(ReleaseError, match="needs k/n"):
        parse_shard(text)
