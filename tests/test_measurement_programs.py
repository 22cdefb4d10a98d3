"""Programs of measurements that use the tests' own helpers start by themselves, too."""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["release_accidents.py", "rehearse.py"])
def test_it_starts_without_pytest(name: str, tmp_path: Path) -> None:
    program = REPO / "measurements" / name
    run = subprocess.run(
        [sys.executable, str(program), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
