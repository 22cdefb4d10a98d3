"""Threads share the op, the loader and one local build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from build_places import environment, run

import lltm_conda

PACKAGE = Path(lltm_conda.__file__).parent
THREADS = Path(__file__).with_name("threads_program.py")


@pytest.mark.slow
def test_sixteen_threads_share_the_op_the_loader_and_one_build(tmp_path: Path) -> None:
    cache_folder = tmp_path / "cache"
    env = environment(
        LLTM_CONDA_CACHE=str(cache_folder),
        PYTHONPATH=str(PACKAGE.parent),
        DEBUG="1",
        FORCE_CUDA="0",
    )
    output = run(sys.executable, "-P", THREADS, cache_folder, cwd=tmp_path, env=env).good()
    assert output.splitlines()[-2:] == ["compiled 1", "failures 0"], output
