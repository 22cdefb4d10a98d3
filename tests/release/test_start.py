"""How scripts/build_all.sh starts the tool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from release import REPO


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A folder whose modules would be found before ours, if one looked there."""
    for name in ("release", "lltm_conda"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    return tmp_path


def test_the_folder_that_it_is_started_in_does_not_matter(elsewhere) -> None:
    env = {**os.environ, "PYTHONPATH": f"{REPO / 'scripts'}:{REPO}", "LLTM_CONDA_LOAD": "0"}
    command = [sys.executable, REPO / "scripts" / "release_tool.py", "release", "--help"]
    done = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "build_matrix.yaml" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["build_all.sh", "cibuildwheel.sh"])
def test_both_scripts_start_it_so(name) -> None:
    text = (REPO / "scripts" / name).read_text(encoding="utf-8")
    assert "-m release" not in text
    assert 'exec "$' in text and '/scripts/release_tool.py" release' in text
