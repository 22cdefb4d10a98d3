"""Cells and their gradients are added up over all steps: in float32 also where the dtype has 16
bits, or what is small beside the sum would be lost."""

from __future__ import annotations

import pytest
import torch
from layer_cases import Case
from test_layer_families import CUDA_FAMILIES

STEPS, BATCH, FEATURES = 64, 17, 8
LARGE = 2048.0  # neither 16-bit type tells it from LARGE + 0.25

sixteen_bits = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
everywhere = pytest.mark.parametrize(
    ("place", "family", "state"),
    [
        ("cpu", "fused", 64),
        ("cpu", "gemm", 67),
        *(pytest.param("cuda", family, 64, marks=pytest.mark.cuda) for family in CUDA_FAMILIES),
        pytest.param("cuda", "gemm", 64, marks=pytest.mark.cuda),
        # Beyond the sizes that one kernel takes whole: a product, and the pointwise kernel.
        pytest.param("cuda", "gemm", 1152, marks=pytest.mark.cuda),
    ],
)


@pytest.fixture(autouse=True)
def forced(monkeypatch, place, family) -> None:
    if place == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    if family == "cluster" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", family)


def run_from(c_0: float, candidate: float, place, state, dtype):
    """c_0, the output and c_n where every step adds `candidate` / 2 to every c."""
    layer = Case(features=FEATURES, state=state).layer(device=place, dtype=dtype)
    with torch.no_grad():
        layer.weights_l0.zero_()
        layer.bias_l0.zero_()[2 * state :] = candidate
    input = torch.zeros(STEPS, BATCH, FEATURES, device=place, dtype=dtype)
    h = torch.zeros(1, BATCH, state, device=place, dtype=dtype)
    c = torch.full_like(h, c_0).requires_grad_()
    output, (_, c_n) = layer(input, (h, c))
    return c, output, c_n


@sixteen_bits
@everywhere
def test_small_steps_count_beside_a_large_cell(place, family, state, dtype) -> None:
    _, _, c_n = run_from(LARGE, 0.5, place, state, dtype)
    assert torch.equal(c_n, torch.full_like(c_n, LARGE + STEPS / 4))


@sixteen_bits
@everywhere
def test_small_gradients_count_beside_a_large_one(place, family, state, dtype) -> None:
    c_0, output, c_n = run_from(0.0, 0.0, place, state, dtype)  # h is tanh(c) / 2
    incoming = torch.full_like(output, 0.5), torch.full_like(c_n, LARGE)
    (d_c_0,) = torch.autograd.grad((output, c_n), c_0, incoming)
    assert torch.equal(d_c_0, torch.full_like(c_0, LARGE + STEPS / 4))
