"""Sequences by the CPU kernels of every instruction set that this processor has.

The level is chosen once per process, so each level runs in its own. A level that the processor
lacks is replaced by the next one: a repetition, no failure.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from processes import Forks

HERE = Path(__file__).parent
# States round a register's width and of odd sizes, since some levels multiply pairs.
LAYERS = """
import torch
from layer_cases import TOLERANCE, Case, agrees_with_the_loop

for dtype, tolerance in TOLERANCE.items():
    for case in (
        Case(3, 1, 4, 1),
        Case(4, 3, 5, 33),
        Case(5, 9, 3, 17, given_state=False),
        Case(6, 2, 70, 131),
        Case(2, 17, 1, 64, bidirectional=True),
    ):
        agrees_with_the_loop(case, case.layer(dtype=dtype), tolerance=tolerance)
"""


@pytest.mark.parametrize(
    "level",
    [
        "default",
        *(pytest.param(level, marks=pytest.mark.slow) for level in ("avx2", "avx512")),
        pytest.param("avx512_bf16", marks=pytest.mark.slow),
        "amx",  # or this processor's best
    ],
)
def test_sequences_of_every_level_agree_with_the_loop(
    level, tmp_path, forked_package: Forks
) -> None:
    folders = [str(HERE), str(HERE.parent / "op"), os.environ.get("PYTHONPATH", "")]
    variables = {
        "LLTM_CPU_CAPABILITY": level,
        "LLTM_LAYER_KERNELS": "fused",
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
    }
    # In a folder where no source can shadow the installed package.
    run = forked_package.run(LAYERS, cwd=tmp_path, env=os.environ | variables)
    assert run.returncode == 0, run.stderr
