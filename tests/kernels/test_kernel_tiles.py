"""AMX's tiles, on any processor: their instructions are emulated."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "csrc" / "kernels" / "cpu"


def test_products_of_pairs_in_tiles_are_those_of_float64(tmp_path: Path) -> None:
    program = tmp_path / "emulated_tiles"
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-fsanitize=address,undefined"]
    command += [f"-I{SOURCES}", str(HERE / "emulated_tiles.cpp"), "-o", str(program)]
    subprocess.run(command, check=True)
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "right\n"), run.stdout + run.stderr
