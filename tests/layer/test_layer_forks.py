"""Processes that are forked after the import compute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_children_that_are_forked_after_the_import_compute(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-P", "-c", FORK], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.stdout == f"{[0] * 8}\n", process.stderr
