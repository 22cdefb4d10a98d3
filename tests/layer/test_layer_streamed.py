"""The family `grid` with weights that do not fit on the chip: each step reads a part of them again.

The sizes are for 132 multiprocessors with 227 KB of shared memory each; with more, all may fit.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from layer_cases import TOLERANCE, Case, agrees_with_the_loop
from test_layer_families import agrees_with_gemm

pytestmark = pytest.mark.cuda
# Rows of one chunk and of several, with few units a block and with many; random sizes.
SIZES = [(3, 5, 8, 2056), (3, 13, 3, 2051), (4, 3, 8, 2400), (3, 20, 5, 2203)]
SOURCE = random.Random(2024)
SIZES += [
    (SOURCE.randint(2, 5), SOURCE.randint(1, 34), 7, SOURCE.randint(1100, 3100)) for _ in range(3)
]
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["float32", "float16", "bfloat16"]
)


@pytest.fixture(autouse=True)
def grid(monkeypatch) -> Iterator[None]:
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs a GPU with compute capability 8.0")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", "grid")
    before = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@dtypes
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_streamed_weights_equal_gemm(monkeypatch, dtype, sizes) -> None:
    agrees_with_gemm(monkeypatch, Case(*sizes), "cuda", "grid", dtype)


@pytest.mark.parametrize("sizes", [*SIZES[1:4], (3, 7, 9, 1200), (3, 18, 9, 1700)], ids=str)
def test_streamed_weights_in_tf32_agree_with_the_loop(sizes) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    case = Case(*sizes)
    # A product in tf32 has the mantissa of float16.
    agrees_with_the_loop(case, case.layer(device="cuda"), tolerance=TOLERANCE[torch.float16])


@pytest.mark.parametrize("tf32", [False, True])
def test_a_state_of_unwritten_words_is_not_waited_for(tf32) -> None:
    """A NaN with the bits by which the kernels mark what is not written yet."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    case = Case(3, 4, 8, 1544)
    layer = case.layer(device="cuda")
    input, h, c = case.inputs(layer)
    ones = torch.tensor(struct.unpack("i", b"\xff" * 4), dtype=torch.int32, device="cuda")
    with torch.no_grad():
        h[0, 1].copy_(ones.view(torch.float32).expand(case.state))
        output, _ = layer(input, (h, c))
    finite = output.isfinite().all(2).all(0)
    assert finite.tolist() == [True, False, True, True]


def test_threads_may_give_other_batches() -> None:
    """How much shared memory a kernel may take is said to the process, not to a thread."""
    layer = Case(2, 8, 8, 1544).layer(device="cuda")
    inputs = [torch.randn(2, rows, 8, device="cuda") for rows in (3, 8)]

    def outputs(input: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            return [layer(input)[0] for _ in range(100)]

    want = [outputs(input)[0] for input in inputs]
    with ThreadPoolExecutor(len(inputs)) as pool:
        actual = list(pool.map(outputs, inputs))
    for each, expected in zip(actual, want, strict=True):
        assert all(torch.equal(output, expected) for output in each)
