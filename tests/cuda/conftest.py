"""What the tests that need a GPU share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

# The op's inputs, oracles and tolerances are shared with tests/op.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "op"))


@pytest.fixture(autouse=True)
def gpu() -> torch.device:
    """The first GPU; every test of this folder needs one."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch.device("cuda", 0)
