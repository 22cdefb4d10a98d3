"""Training in two processes gives the losses of one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from distributed_training import train
from op_cases import TORCH, since

PROGRAM = Path(__file__).with_name("distributed_training.py")
# torch 2.6 has fully_shard as well, but its own code fails on CPUs (a stream has no record_event).
KINDS = ("ddp", "fsdp") if TORCH >= (2, 7) else ("ddp",)


@pytest.fixture(scope="module")
def losses_of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("two_processes")
    workers = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), "2", str(folder / "init"), *KINDS],
            cwd=folder,
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
    for worker, (_, errors) in zip(workers, finished, strict=True):
        assert worker.returncode == 0, errors
    return [json.loads(losses_among(output.splitlines())) for output, _ in finished]


def losses_among(lines: list[str]) -> str:
    """The program's own line: gloo of torch 2.9 prints to the standard output as well."""
    return next(line for line in lines if line.startswith("{"))


@pytest.mark.parametrize(
    "kind", ["ddp", pytest.param("fsdp", marks=since("2.7", "fully_shard on CPUs"))]
)
def test_two_processes_have_the_losses_of_one(kind, losses_of_two_processes) -> None:
    want = train("single", 0, 1)
    assert want[-1] != want[0], "nothing was trained"
    for rank, losses in enumerate(losses_of_two_processes):
        assert losses[kind] == pytest.approx(want, rel=1e-12), f"rank {rank}"
