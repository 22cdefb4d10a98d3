"""Devices of the benchmark tests: the CPU, and the GPU under its marker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# `benchmarks` is a folder of the repository, not an installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    """A run sets torch's thread count; another test should not notice."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
