"""The loop over steps where backward's product of a step is made in planes, split over its depth,
that the pointwise kernel of the step before adds up: 16 bits, and float32 with tf32 allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from layer_cases import RESULTS, TOLERANCE, Case, leaves, loop, names, run
from op_cases import assert_agree, gradients, like

pytestmark = pytest.mark.cuda

# A product in tf32 has the mantissa of float16.
TF32_TOLERANCE = TOLERANCE[torch.float16]


@pytest.fixture(autouse=True)
def loop_on_a_gpu(monkeypatch) -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "fallback")
    monkeypatch.setenv("LLTM_CUDA_CELL", "gemm")  # not the kernels that multiply for themselves
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def agrees_with_float64(case: Case, dtype: torch.dtype, tolerance: float) -> None:
    layer = case.layer(device="cuda", dtype=dtype)
    inputs = case.inputs(layer)
    outputs = run(layer, *inputs)
    incoming = like(outputs)
    got = gradients(outputs, leaves(layer, inputs), incoming)
    exact_layer = case.layer(device="cuda", dtype=torch.float64)
    exact_layer.load_state_dict(layer.state_dict())
    exact = tuple(t.detach().double().requires_grad_() for t in inputs)
    wanted = loop(exact_layer, *exact)
    want = gradients(wanted, leaves(exact_layer, exact), [g.double() for g in incoming])
    assert_agree((*outputs, *got), (*wanted, *want), tolerance, (*RESULTS, *names(layer, inputs)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "state"])
def test_sixteen_bits_in_four_planes(dtype, given) -> None:
    case = Case(5, 17, 8, 544, bidirectional=True, given_state=given)
    agrees_with_float64(case, dtype, TOLERANCE[dtype])


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "state"])
def test_tf32_in_three_planes(given) -> None:
    case = Case(4, 65, 8, 520, bidirectional=True, given_state=given)
    agrees_with_float64(case, torch.float32, TF32_TOLERANCE)


@pytest.mark.parametrize(
    ("batch", "state"), [(15, 544), (17, 528), (17, 480)], ids=["rows", "alignment", "depth"]
)
def test_sixteen_bits_in_one_product(batch, state) -> None:
    agrees_with_float64(Case(3, batch, 8, state), torch.bfloat16, TOLERANCE[torch.bfloat16])
