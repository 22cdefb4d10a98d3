"""A corner of the pair table, measured again: two torches really installed, every glue in both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "measurements" / "pair_table" / "make_pair_table.py"


@pytest.mark.slow
@pytest.mark.network
def test_no_accepted_pair_fails_when_it_is_run(tmp_path: Path) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    command = [sys.executable, str(SCRIPT), "--work", str(tmp_path), "--minors", "2.9,2.10"]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
    )
    assert process.returncode == 0, process.stdout + process.stderr
    cells = {
        (cell["glue"], cell["torch"]): cell
        for cell in json.loads(
            process.stdout[process.stdout.index("[\n") :].rpartition("]")[0] + "]"
        )
    }
    # Nothing is missing and no size differs, yet it does not work: the slots tell.
    assert cells["aten29-abi1", "2.10"]["outcome"] != "works"
    assert not cells["aten29-abi1", "2.10"]["accepted"]
    assert cells["aten210-abi1", "2.10"]["outcome"] == "works"
    assert cells["stable210", "2.10"]["accepted"]
