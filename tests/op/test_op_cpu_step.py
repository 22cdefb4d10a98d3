"""The CPU's own products of a whole step, beside torch's, at every instruction set and size class.

``LLTM_CPU_PRODUCTS`` forces either; it is read once per process, so each case has its own.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from processes import Forks

HERE = Path(__file__).parent
#: The first is the processor's best: one that it lacks is replaced by the next. For the others,
#: test_op_cpu_levels.py has tests that are quicker.
BEST, *OTHERS = ("amx", "avx512_bf16", "avx512", "avx2", "default")
every_level = pytest.mark.parametrize(
    "level", [BEST, *(pytest.param(level, marks=pytest.mark.slow) for level in OTHERS)]
)

# Batches round a register's width, a tile's and a chunk's (128), states round a block's, and one
# depth beyond what is multiplied in one go (512).
SIZES = """
sizes = [(b, i, s) for b in (1, 7, 16, 33) for i, s in ((0, 5), (3, 17), (33, 40))]
sizes += [(131, 9, 33), (261, 5, 18), (20, 70, 500), (3, 70, 500), (140, 20, 530)]
"""

AGREES = (
    SIZES
    + """
import torch
from op_cases import *

for dtype in DTYPES:
    for case, (b, i, s) in enumerate(sizes):
        inputs = make_inputs(b, i, s, dtype=dtype, requires_grad=True)
        exact = in_float64(inputs)
        results, want = torch.ops.lltm.forward(*inputs), reference_with_gates(*exact)
        incoming = like(results)
        wanted = gradients(want, exact, [g.double() for g in incoming])
        assert_agree(results, want, TOLERANCE[dtype], ("new_h", "new_cell", "gates"))
        saved = [t.detach() for t in saved_for_backward(inputs, results)]
        for needs in (31, (6, 1, 8, 2, 4, 16, 0)[case % 7]):
            got = torch.ops.lltm.backward(*incoming, *saved, needs)
            for bit, name, g, w in zip((1, 2, 4, 8, 16), NAMES, got, wanted):
                if needs & bit:
                    assert_agree([g], [w], TOLERANCE[dtype], [f"{name} {dtype} {b, i, s} {needs}"])
                else:
                    assert g.numel() == 0, name
"""
)

REPEATS = (
    SIZES
    + """
import torch
from op_cases import *

sizes += [(64, 64, 256), (300, 30, 120)]  # enough work for a second thread
for dtype in (torch.float32, torch.bfloat16):
    for b, i, s in sizes:
        inputs = make_inputs(b, i, s, dtype=dtype)
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results = torch.ops.lltm.forward(*inputs)
            saved = saved_for_backward(inputs, results)
            found.append((*results, *torch.ops.lltm.backward(*like(results), *saved, 31)))
        for other in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(found[0], other)), (dtype, b, i, s)
"""
)


@pytest.fixture
def in_process(tmp_path, forked_package: Forks):
    """Runs a program with the variables set, where no source shadows the installed package."""

    def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | variables | {"PYTHONPATH": _path()}
        return forked_package.run(program, cwd=tmp_path, env=environment)

    return run


def _path() -> str:
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(HERE))))


@every_level
@pytest.mark.slow
def test_own_products_agree_with_float64(in_process, level) -> None:
    run = in_process(AGREES, LLTM_CPU_PRODUCTS="own", LLTM_CPU_CAPABILITY=level)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow  # the other tests of the op compare what the processor takes by itself
def test_gemm_agrees_with_float64(in_process) -> None:
    run = in_process(AGREES, LLTM_CPU_PRODUCTS="gemm")
    assert run.returncode == 0, run.stderr


@every_level
def test_results_do_not_depend_on_the_number_of_threads(in_process, level) -> None:
    run = in_process(REPEATS, LLTM_CPU_PRODUCTS="own", LLTM_CPU_CAPABILITY=level)
    assert run.returncode == 0, run.stderr


def test_unknown_products_are_refused_by_name(in_process) -> None:
    step = "import torch, lltm_conda; lltm_conda.LLTM(3, 5)(torch.ones(2, 3))"
    run = in_process(step, LLTM_CPU_PRODUCTS="theirs")
    last = run.stderr.strip().splitlines()[-1]
    assert run.returncode != 0 and "LLTM_CPU_PRODUCTS must be own or gemm" in last, run.stderr
