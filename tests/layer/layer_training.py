"""A few steps of training with an LLTMLayer, in one process or as one of several.

Run by test_layer_distributed.py: ``python layer_training.py RANK WORLD_SIZE INIT_FILE`` prints the
losses, which are those of ``train(0, 1)``.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn

from lltm_conda import LLTMLayer

STEPS, BATCH, LENGTH, FEATURES, STATE = 5, 8, 4, 6, 10


class SequenceModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = LLTMLayer(FEATURES, STATE, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * STATE, 3)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(sequence)[0][:, -1])


def train(rank: int, world_size: int) -> list[float]:
    torch.manual_seed(0)
    model: nn.Module = SequenceModel().double()
    if world_size > 1:
        model = nn.parallel.DistributedDataParallel(model)
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


def main(rank: str, world_size: str, init_file: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=int(rank), world_size=int(world_size)
    )
    print(json.dumps(train(int(rank), int(world_size))))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
