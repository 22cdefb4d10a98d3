"""Processes that are forked after the import compute."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Forks

FORK = """
import os, torch, lltm_conda

def step():
    torch.manual_seed(0)
    cell = lltm_conda.LLTM(40, 50)
    sum(result.sum() for result in cell(torch.ones(60, 40))).backward()
    layer = lltm_conda.LLTMLayer(4, 5)
    layer(torch.ones(3, 2, 4))[0].sum().backward()
    return [p.grad for p in (*cell.parameters(), *layer.parameters())]

children = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
        again = step()
        os._exit(0 if all(map(torch.equal, again, step())) else 1)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


@pytest.mark.slow
def test_children_that_are_forked_after_the_import_compute(
    tmp_path: Path, forked_package: Forks
) -> None:
    process = forked_package.run(FORK, cwd=tmp_path)
    assert process.stdout == f"{[0] * 8}\n", process.stderr
