"""Large results on a CPU get large pages of memory, so that writing them takes few page faults."""

from __future__ import annotations

import mmap
import resource
from pathlib import Path

import pytest
import torch
from op_cases import like, make_inputs, saved_for_backward

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture(autouse=True)
def large_pages() -> None:
    if not SETTING.exists() or "[never]" in SETTING.read_text():
        pytest.skip("this Linux gives no large pages")


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_a_large_gradient_takes_few_page_faults() -> None:
    inputs = make_inputs(1, 1000, 1000, dtype=torch.float32)
    results = torch.ops.lltm.forward(*inputs)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    before = faults()
    d_weights = torch.ops.lltm.backward(*incoming, *saved, 2)[1]
    small_pages = d_weights.nbytes // mmap.PAGESIZE
    assert faults() - before < small_pages / 2
