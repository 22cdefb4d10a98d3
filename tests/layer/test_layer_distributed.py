"""Data-parallel training in two processes gives the losses of one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from layer_training import train

PROGRAM = Path(__file__).with_name("layer_training.py")


def test_two_processes_have_the_losses_of_one(tmp_path) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), "2", str(tmp_path / "init")],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        finished = [worker.communicate(timeout=240) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    want = train(0, 1)
    assert want[-1] < want[0], "nothing was learnt"
    for worker, (output, errors) in zip(workers, finished, strict=True):
        assert worker.returncode == 0, errors
        # gloo of torch 2.9 prints to the standard output as well.
        line = next(line for line in output.splitlines() if line.startswith("["))
        assert json.loads(line) == pytest.approx(want, rel=1e-12)
