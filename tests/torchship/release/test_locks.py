"""What the release tool installs for itself is locked, each file by its hash."""

from __future__ import annotations

from pathlib import Path

import pytest
from lock_files import lock_problems
from small_clients import TORCHSHIP

LOCKS = sorted((TORCHSHIP / "release" / "requirements").glob("*.txt"))


def test_each_environment_has_a_lock() -> None:
    assert [path.stem for path in LOCKS] == ["cibuildwheel", "release", "sbom"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_requirement_is_locked_with_hashes(lock: Path) -> None:
    assert list(lock_problems(lock)) == []


LOCK = "a-tool==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"


@pytest.mark.parametrize(
    ("lock", "required", "problem"),
    [
        (LOCK + "other==1.0\n", "a-tool\n", "no hash: other==1.0"),
        (LOCK, "a-tool\nother>=1\n", "not locked: other>=1"),
    ],
)
def test_a_line_that_is_not_locked_would_be_found(lock, required, problem, tmp_path) -> None:
    (tmp_path / "x.in").write_text(required)
    (tmp_path / "x.txt").write_text(lock)
    assert problem in lock_problems(tmp_path / "x.txt")
