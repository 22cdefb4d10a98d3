"""Threads share a sequence's rows, or the columns of each step: its results are the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import lltm_conda


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def results(count: int, layer: torch.nn.Module, input: torch.Tensor) -> list[torch.Tensor]:
    torch.set_num_threads(count)
    leaf = input.clone().requires_grad_()
    output, (h, cell) = layer(leaf)
    sources = [leaf, *layer.parameters()]
    gradients = torch.autograd.grad([output.sin().sum(), h.sum(), cell.cos().sum()], sources)
    return [output, h, cell, *gradients]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("rows", "features", "state"),
    [(4, 33, 170), (5, 60, 250), (7, 300, 129), (8, 520, 400), (40, 20, 70)],
    ids=str,
)
def test_threads_change_no_bit(threads, monkeypatch, rows, features, state, dtype) -> None:
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "fused")
    torch.manual_seed(rows)
    layer = lltm_conda.LLTMLayer(features, state, dtype=dtype)
    input = torch.randn(5, rows, features, dtype=dtype)
    alone = results(1, layer, input)
    for count in (2, 3):
        for one, other in zip(alone, results(count, layer, input), strict=True):
            assert torch.equal(one, other)
