"""The loop over steps where backward's product of a step is made in planes, split over its depth,
that the pointwise kernel of the step before adds up: 16 bits, and float32 with tf32 allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from layer_cases import TOLERANCE, Case, agrees_with_the_loop

pytestmark = pytest.mark.cuda

# A product in tf32 has the mantissa of float16.
TF32_TOLERANCE = TOLERANCE[torch.float16]


@pytest.fixture(autouse=True)
def loop_on_a_gpu(monkeypatch) -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "gemm")
    monkeypatch.setenv("LLTM_CUDA_CELL", "gemm")  # not the kernels that multiply for themselves
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("given_state", [False, True], ids=["zeros", "state"])
def test_sixteen_bits_in_four_planes(dtype, given_state) -> None:
    case = Case(5, 17, 8, 544, bidirectional=True, given_state=given_state)
    agrees_with_the_loop(case, case.layer(device="cuda", dtype=dtype), tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("given_state", [False, True], ids=["zeros", "state"])
def test_tf32_in_three_planes(given_state) -> None:
    case = Case(4, 65, 8, 520, bidirectional=True, given_state=given_state)
    agrees_with_the_loop(case, case.layer(device="cuda"), tolerance=TF32_TOLERANCE)


@pytest.mark.parametrize(
    ("batch", "state"), [(15, 544), (17, 528), (17, 480)], ids=["rows", "alignment", "depth"]
)
def test_sixteen_bits_in_one_product(batch, state) -> None:
    case = Case(3, batch, 8, state)
    layer = case.layer(device="cuda", dtype=torch.bfloat16)
    agrees_with_the_loop(case, layer, tolerance=TOLERANCE[torch.bfloat16])
