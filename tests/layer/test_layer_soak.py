"""Ten thousand random calls on two streams at once: none hangs, none differs, no memory is lost.

LLTM_SOAK_CALLS says how many, LLTM_SOAK_SEED which.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import soak_program
import torch
from test_layer_families import CUDA_FAMILIES

PROGRAM = Path(soak_program.__file__)
#: What the program imports: the helpers of these tests and of those of one step.
HELPERS = (PROGRAM.parent, PROGRAM.parents[1] / "op")


def test_every_family_is_in_the_soak() -> None:
    assert {*CUDA_FAMILIES, "gemm"} == {*soak_program.STATES}


@pytest.mark.cuda
@pytest.mark.slow
def test_random_calls_on_two_streams_at_once(tmp_path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    calls = os.environ.get("LLTM_SOAK_CALLS", "10000")
    seed = os.environ.get("LLTM_SOAK_SEED", "7")
    command = [sys.executable, str(PROGRAM), "--calls", calls, "--seed", seed]
    path = os.pathsep.join([*map(str, HELPERS), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}
    try:
        # Its own process: one that waits for a kernel that never ends can only be killed.
        run = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"the soak hangs: {late}")
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    report = run.stdout.splitlines()[-1]
    print(f"\n{report}")  # for measurements/gpu_suite.py, which stores it
    assert json.loads(report)["calls"] >= int(calls)
