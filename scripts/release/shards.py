"""Splits the cells over machines; every machine computes the same split from the matrix alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from release import ReleaseError
from release.cells import Cell

# Seconds measured on two cores; only their proportions matter. A step that several cells of a shard
# share counts once.
TORCH, GLUE = 25.0, {"stable": 6.0, "aten": 20.0}
KERNELS = {"cpu": 20.0, "cuda12": 60.0, "cuda13": 60.0}
OWN = 60.0  # wheel, package, fresh environments, runs


def parse_shard(text: str) -> tuple[int, int]:
    """`2/8` as (2, 8).

    Raises:
        ReleaseError: it is not of that form, or not 1 <= k <= n.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise ReleaseError(f"--shard: got {text!r}, needs k/n with 1 <= k <= n, such as 2/8")
    return number, count


def costs(cell: Cell) -> dict[str, float]:
    """The estimated cost of each step of a cell; steps of the same name are shared."""
    found = {
        f"torch {cell.torch.release}": TORCH,
        f"glue {cell.glue}": GLUE[cell.variant.glue.lane],
    }
    found.update({f"kernels {name}": KERNELS[name] for name in cell.kernels})
    found[f"cell {cell.name}"] = OWN
    return found


def load(cells: Sequence[Cell]) -> float:
    """The cost of a shard with these cells."""
    return sum({name: cost for cell in cells for name, cost in costs(cell).items()}.values())


def split(cells: Sequence[Cell], count: int) -> list[list[Cell]]:
    """`count` shards of about equal cost, each in the order of `cells`.

    Cells are placed by falling cost, each into the shard that is cheapest with it.
    """
    shards: list[list[Cell]] = [[] for _ in range(count)]
    for cell in sorted(cells, key=lambda c: (-load([c]), c.name)):
        min(shards, key=lambda shard: load([*shard, cell])).append(cell)
    return [[cell for cell in cells if cell in shard] for shard in shards]
