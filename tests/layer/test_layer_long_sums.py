"""Gradients of cells are added up over all steps: in float32 also where the dtype has 16 bits, or
what is small beside the sum would be lost."""

from __future__ import annotations

import pytest
import torch
from layer_cases import Case
from test_layer_families import CUDA_FAMILIES

STEPS = 64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("place", "family", "state"),
    [
        ("cpu", "fused", 64),
        *(pytest.param("cuda", family, 64, marks=pytest.mark.cuda) for family in CUDA_FAMILIES),
        pytest.param("cuda", "fallback", 64, marks=pytest.mark.cuda),
        pytest.param("cuda", "fallback", 544, marks=pytest.mark.cuda),
    ],
)
def test_small_gradients_count_beside_a_large_sum(monkeypatch, place, family, state, dtype) -> None:
    if place == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    if family == "cluster" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", family)
    layer = Case(features=8, state=state).layer(device=place, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()  # c stays 0, and each step adds half of its output's gradient
    input = torch.zeros(STEPS, 17, 8, device=place, dtype=dtype)
    h_0, c_0 = (torch.zeros(1, 17, state, device=place, dtype=dtype) for _ in range(2))
    output, (_, c_n) = layer(input, (h_0, c_0.requires_grad_()))
    incoming = torch.full_like(output, 0.5), torch.full_like(c_n, 2048.0)
    (d_c_0,) = torch.autograd.grad((output, c_n), c_0, incoming)
    assert torch.equal(d_c_0, torch.full_like(c_0, 2048.0 + STEPS / 4))
