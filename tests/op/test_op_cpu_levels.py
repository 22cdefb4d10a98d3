"""The CPU kernels of every instruction set that this processor has, not of the best one only.

The level is chosen once per process, so each runs the tests of accuracy and numerics in its own.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch
from processes import Forks

HERE = Path(__file__).parent
LEVELS = ("default", "avx2", "avx512", "avx512_bf16", "amx")
BEST = torch.backends.cpu.get_cpu_capability().lower()  # default, avx2, avx512, ...
FLAGS = Path("/proc/cpuinfo").read_text().split()
if BEST == "avx512" and "avx512_bf16" in FLAGS:
    BEST = "amx" if "amx_bf16" in FLAGS else "avx512_bf16"


@pytest.fixture
def in_process(tmp_path, forked_package: Forks):
    """Runs code with a level, in a folder where no source can shadow the installed package."""

    def run(level: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"LLTM_CPU_CAPABILITY": level}
        return forked_package.run(code, *arguments, cwd=tmp_path, env=environment)

    return run


TESTS = "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.slow  # three files of tests; tests/layer has a quick test of each processor's lowest
@pytest.mark.parametrize("level", LEVELS)
def test_level_is_accurate(level, in_process) -> None:
    if BEST in LEVELS and LEVELS.index(level) >= LEVELS.index(BEST):
        pytest.skip(
            f"this processor's best is {BEST}: the other tests ran it, {level} adds nothing"
        )
    names = ("test_op_accuracy.py", "test_op_numerics.py", "../kernels/test_kernel_products.py")
    files = [str(HERE / name) for name in names]
    options = ["-q", "-p", "no:cacheprovider"]
    run = in_process(level, TESTS, *options, *files)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr


STEP = "import torch, lltm_conda; lltm_conda.LLTM(3, 5)(torch.ones(2, 3))"


@pytest.mark.slow
def test_unknown_level_is_refused_by_name(in_process) -> None:
    run = in_process("sse9", STEP)
    assert run.returncode != 0
    last = run.stderr.strip().splitlines()[-1]
    level = "sve" if platform.machine() == "aarch64" else "avx2"
    assert "LLTM_CPU_CAPABILITY" in last and level in last, run.stderr


def test_a_level_that_the_processor_lacks_falls_back(in_process) -> None:
    if "avx512f" in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("this processor lacks no level")
    run = in_process("avx512", STEP)
    assert run.returncode == 0, run.stderr
