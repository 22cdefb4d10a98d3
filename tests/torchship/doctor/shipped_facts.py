"""The small client with the facts of support that a new project ships, and machines that run it."""

from __future__ import annotations

import made_facts
import small_client
from small_clients import TORCHSHIP

from torchship.judge import Runtime, TorchInstall

PROJECT = small_client.PROJECT._replace(folder=TORCHSHIP / "templates" / "rms_norm" / "own_op")


def make_runtime(torch: TorchInstall | None = None, **facts: object) -> Runtime:
    return made_facts.make_runtime(torch, **{"project": PROJECT, **facts})
