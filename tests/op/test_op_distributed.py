"""Training in two processes gives the losses of one, with cells and with layers."""

from __future__ import annotations

import pytest
from distributed_training import MODELS, Losses, of_two_processes, train
from op_cases import TORCH, since

# torch 2.6 has fully_shard as well, but its own code fails on CPUs (a stream has no record_event).
KINDS = ("ddp", "fsdp") if TORCH >= (2, 7) else ("ddp",)


@pytest.fixture(scope="module")
def losses_of_two_processes(tmp_path_factory) -> list[Losses]:
    return of_two_processes(tmp_path_factory.mktemp("two_processes"), *KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "kind", ["ddp", pytest.param("fsdp", marks=since("2.7", "fully_shard on CPUs"))]
)
def test_two_processes_have_the_losses_of_one(model, kind, losses_of_two_processes) -> None:
    want = train(model, "single", 0, 1)
    assert want[-1] != want[0], "nothing was trained"
    for rank, losses in enumerate(losses_of_two_processes):
        assert losses[model][kind] == pytest.approx(want, rel=1e-12), f"rank {rank}"
