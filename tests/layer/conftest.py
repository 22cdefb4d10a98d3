"""What the tests of the layer share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

# Tolerances and comparisons are shared with tests/op.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "op"))


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU always, a GPU under the marker `cuda`."""
    if request.param != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch.device(request.param)
