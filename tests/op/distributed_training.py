"""A few steps of training with an LLTM, in one process or as one of several.

Run by test_op_distributed.py: ``python distributed_training.py RANK WORLD_SIZE INIT_FILE KIND...``
prints the losses of each kind (ddp, fsdp). All kinds see the same batches and the same initial
values, so all have the losses of ``train("single", 0, 1)``.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn

from lltm_conda import LLTM

STEPS, BATCH, LENGTH, FEATURES, STATE = 5, 8, 4, 6, 10


class SequenceModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = LLTM(FEATURES, STATE, dtype=torch.float64)
        self.head = nn.Linear(STATE, 3, dtype=torch.float64)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        state = None
        for step in sequence.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0])


def train(kind: str, rank: int, world_size: int) -> list[float]:
    torch.manual_seed(0)
    model: nn.Module = SequenceModel()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world_size,))
        fully_shard(model.cell, mesh=mesh)
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


def main(rank: str, world_size: str, init_file: str, *kinds: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=int(rank), world_size=int(world_size)
    )
    print(json.dumps({kind: train(kind, int(rank), int(world_size)) for kind in kinds}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
