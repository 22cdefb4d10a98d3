"""Threads share the op and the loader."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from build_places import environment, run

import lltm_conda

PACKAGE = Path(lltm_conda.__file__).parent
THREADS = Path(__file__).with_name("threads_program.py")


@pytest.mark.slow
def test_twelve_threads_share_the_op_and_the_loader(tmp_path: Path) -> None:
    """torchship/builder/test_build_local.py has threads that share a local build."""
    env = environment(LLTM_CONDA_CACHE=str(tmp_path / "cache"), PYTHONPATH=str(PACKAGE.parent))
    output = run(sys.executable, "-P", THREADS, cwd=tmp_path, env=env).good()
    assert output.splitlines()[-1] == "failures 0", output
