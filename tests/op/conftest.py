"""What the tests of the op share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every device a property has to hold on: the CPU always, a GPU under the marker `cuda`."""
    if request.param != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch.device(request.param)
