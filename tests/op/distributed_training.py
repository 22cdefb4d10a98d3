"""A few steps of training with an LLTM or an LLTMLayer, in one process or as one of several.

``python distributed_training.py RANK WORLD_SIZE INIT_FILE KIND...`` prints the losses of each model
by each kind (ddp, fsdp). All kinds see the same batches and the same initial values, so all have
the losses of ``train(model, "single", 0, 1)``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from lltm_conda import LLTM, LLTMLayer

STEPS, BATCH, LENGTH, FEATURES, STATE = 5, 8, 4, 6, 10


class CellModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = LLTM(FEATURES, STATE)
        self.head = nn.Linear(STATE, 3)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        state = None
        for step in sequence.unbind(1):
            state = self.recurrent(step, state)
        return self.head(state[0])


class LayerModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = LLTMLayer(FEATURES, STATE, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * STATE, 3)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(sequence)[0][:, -1])


MODELS = {"cell": CellModel, "layer": LayerModel}


def train(of: str, kind: str, rank: int, world_size: int) -> list[float]:
    torch.manual_seed(0)
    model: nn.Module = MODELS[of]().double()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world_size,))
        fully_shard(model.recurrent, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(STEPS):
        sequences = torch.randn(BATCH, LENGTH, FEATURES, dtype=torch.float64, generator=generator)
        targets = torch.randn(BATCH, 3, dtype=torch.float64, generator=generator)
        mine = slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)
        loss = (model(sequences[mine]) - targets[mine]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if world_size > 1:
            dist.all_reduce(total)
        losses.append(total.item() / world_size)
    return losses


Losses = dict[str, dict[str, list[float]]]
"""Of each model, by each kind."""


def of_two_processes(folder: Path, *kinds: str) -> list[Losses]:
    """What this program prints as each of two processes."""
    program = str(Path(__file__))
    shared = str(folder / "init")
    workers = [
        subprocess.Popen(
            [sys.executable, program, str(rank), "2", shared, *kinds],
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


def main(rank: str, world_size: str, init_file: str, *kinds: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=int(rank), world_size=int(world_size)
    )
    losses = {
        model: {kind: train(model, kind, int(rank), int(world_size)) for kind in kinds}
        for model in MODELS
    }
    print(json.dumps(losses), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # at the end of Python, torch's threads of the group abort the process now and then
