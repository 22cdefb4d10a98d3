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
def keep_settings() -> Iterator[None]:
    """A run sets torch's thread count and its flags for tf32; another test should not notice."""
    flags = (torch.backends.cuda.matmul, torch.backends.cudnn)
    threads = torch.get_num_threads()
    allowed = [flag.allow_tf32 for flag in flags]
    yield
    torch.set_num_threads(threads)
    for flag, value in zip(flags, allowed, strict=True):
        flag.allow_tf32 = value
