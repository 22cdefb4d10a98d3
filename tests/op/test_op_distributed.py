"""Training in two processes gives the losses of one, with cells and with layers."""

from __future__ import annotations

import pytest
from distributed_training import MODELS, of_two_processes, train
from op_cases import TORCH, since

# torch 2.6 has fully_shard as well, but its own code fails on CPUs (a stream has no record_event).
KINDS = ("ddp", "fsdp") if TORCH >= (2, 7) else ("ddp",)


@pytest.fixture(scope="module", params=[*MODELS])
def model_and_losses(request, tmp_path_factory) -> tuple[str, list[dict]]:
    folder = tmp_path_factory.mktemp("two_processes")
    return request.param, of_two_processes(folder, request.param, *KINDS)


@pytest.mark.parametrize(
    "kind", ["ddp", pytest.param("fsdp", marks=since("2.7", "fully_shard on CPUs"))]
)
def test_two_processes_have_the_losses_of_one(kind, model_and_losses) -> None:
    model, losses_of_two_processes = model_and_losses
    want = train(model, "single", 0, 1)
    assert want[-1] != want[0], "nothing was trained"
    for rank, losses in enumerate(losses_of_two_processes):
        assert losses[kind] == pytest.approx(want, rel=1e-12), f"rank {rank}"
