"""Shards: every cell in exactly one, the same on every machine, of about equal length."""

from __future__ import annotations

import pytest

from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells, part_of


def shards(cells, count: int) -> list[list[str]]:
    return [[c.name for c in part_of(cells, f"{n}/{count}")] for n in range(1, count + 1)]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 40])
def test_every_cell_is_in_exactly_one_shard(count, matrix) -> None:
    cells = all_cells(matrix)
    assert [name for part in shards(cells, count) for name in part] == [c.name for c in cells]


@pytest.mark.parametrize("count", [2, 4, 8, 40])
def test_shards_are_of_about_equal_length(count, matrix) -> None:
    lengths = [len(part) for part in shards(all_cells(matrix), count)]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("count", [2, 7])
def test_few_cells_of_one_glue_are_parted(count, matrix) -> None:
    """What cells share is then built a few times only."""
    cells = all_cells(matrix)
    glues = [{name.rpartition("-")[0] for name in part} for part in shards(cells, count)]
    assert sum(map(len, glues)) <= len({cell.glue for cell in cells}) + count - 1


@pytest.mark.parametrize("shard", ["0/8", "9/8", "2", "2/0", "a/b", "-1/2", "2/8/3", ""])
def test_what_is_no_shard_is_refused(shard) -> None:
    with pytest.raises(ReleaseError, match="needs k/n"):
        part_of([], shard)
