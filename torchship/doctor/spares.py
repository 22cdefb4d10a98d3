"""The variants of a package that are there for another torch or device: no faults, where one works.

A wheel for many torches holds a glue for each. Of those in one folder, one that works is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..judge.records import GlueName, KernelsName, parse_file_name
from .decide import FAILS, REMARK, WORKS
from .report.rows import Row


def pass_over_spares(rows: Iterable[Row]) -> list[Row]:
    """The rows; a variant that fails beside one of its kind that works gets a remark instead."""
    judged = list(rows)
    working = {_group(row.path): row.path.name for row in judged if row.state == WORKS}
    return [
        _as_remark(row, working[_group(row.path)])
        if row.state == FAILS and _is_variant(row.path) and _group(row.path) in working
        else row
        for row in judged
    ]


def _is_variant(path: Path) -> bool:
    return isinstance(parse_file_name(path.name), (GlueName, KernelsName))


def _group(path: Path) -> tuple[Path, type]:
    """What a variant is one of several of: the glues, or the kernels, of a folder."""
    return path.parent, type(parse_file_name(path.name))


def _as_remark(row: Row, working: str) -> Row:
    summary = f"not for here, where {working} serves: {row.summary}"
    return row._replace(state=REMARK, summary=summary, finding=None)
