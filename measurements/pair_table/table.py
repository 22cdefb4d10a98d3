"""The table of pairs: which glue works in which torch, and what the checker said before."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

from measurements import storage

PATH = storage.RESULTS / "pair_table.json.xz"


@dataclass(frozen=True)
class Pair:
    """A glue beside a torch."""

    glue: str
    torch: str
    """The minor."""
    torch_version: str
    accepted: bool
    """The checker's verdict."""
    reason: str | None
    """Why the checker refused the pair."""
    outcome: str
    """`works`, or how it failed."""
    detail: str
    """The start of the error; of a pair that works, its error against float64."""

    @property
    def works(self) -> bool:
        return self.outcome == "works"


@dataclass(frozen=True)
class PairTable:
    command: str
    machine: str
    commit: str
    seconds: int
    minors: list[str]
    cells: list[Pair]
    schema: int = 1


def load() -> PairTable:
    document = cast("dict[str, Any]", storage.load(PATH))
    pairs = [Pair(**cell) for cell in document["cells"]]
    return PairTable(**{**document, "cells": pairs})


def save(table: PairTable) -> None:
    storage.save(asdict(table), PATH)
