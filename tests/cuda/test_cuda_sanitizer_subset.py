"""Small shapes for compute-sanitizer, either side of blocks and strips, and shapes drawn at random:

PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
    python -m pytest -m cuda tests/cuda/test_cuda_sanitizer_subset.py

(likewise racecheck, initcheck, synccheck). Without the caching allocator every tensor is an
allocation of its own, so that an access past its end is seen. LLTM_SANITIZER_SEED draws others.
"""

from __future__ import annotations

import math
import os
import random

import pytest
import torch
from op_cases import (
    SMALLEST_SCALE,
    TOLERANCE,
    assert_agree,
    every_dtype,
    in_float64,
    like,
    make_inputs,
    saved_for_backward,
)

import lltm_conda

pytestmark = pytest.mark.cuda

SOURCE = random.Random(int(os.environ.get("LLTM_SANITIZER_SEED", "20")))


def drawn(highest: int) -> int:
    """A log-uniform size from 1 on."""
    return int(math.exp(SOURCE.uniform(0, math.log(highest + 1))))


SHAPES = [(0, 3, 5), (1, 1, 1), (3, 2, 7), (17, 3, 33), (9, 5, 255), (5, 2, 257), (300, 1, 3)]
VECTORS = (67, 16, 24)  # rows of whole vectors, the last tiles half empty
WORDS = (18, 6, 34)  # rows of whole words of 4 bytes
# The states are, the weights are not: cuBLAS would take kernels whose bulk stores initcheck misses.
STATE_VECTORS = (67, 3, 24)
CASES = [
    *(("", shape) for shape in (*SHAPES, VECTORS)),
    *((path, s) for path in ("gemm", "cublas", "tensor") for s in (*SHAPES[2:], STATE_VECTORS)),
    *((path, VECTORS) for path in ("rows4", "rows16", "rows64", "tensor")),
    ("tensor", WORDS),
    ("tensor", (67, *WORDS[1:])),  # more rows than the tile for few of them
    ("planes", (67, 43, 24)),
    *(("", (drawn(300), drawn(300), drawn(300))) for _ in range(6)),
]


@every_dtype
@pytest.mark.parametrize(("path", "shape"), CASES, ids=str)
def test_sanitizer_forward_and_backward(gpu, monkeypatch, dtype, path, shape) -> None:
    monkeypatch.setenv("LLTM_CUDA_CELL", path)
    inputs = make_inputs(*shape, dtype=dtype, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    want = lltm_conda.reference(*in_float64(inputs))
    names = ("new_h", "new_cell")
    assert_agree(results[:2], want, TOLERANCE[dtype], names, SMALLEST_SCALE)
    incoming = like(results)
    saved = saved_for_backward(inputs, results)
    for subset in (incoming, (incoming[0], None, None), (None, incoming[1], None)):
        for gradient in torch.ops.lltm.backward(*subset, *saved, 31):
            assert gradient.isfinite().all()
    torch.ops.lltm.backward(*incoming, *saved, 6)
    expanded = incoming[0][:1, :1].expand_as(incoming[0])
    without_gates = (*saved[:-1], None)
    torch.ops.lltm.backward(expanded, expanded, None, *without_gates, 31)
    torch.cuda.synchronize()


# Of each family, the states that are drawn.
STATES = {"registers": (1, 128), "cluster": (1, 512), "grid": (1, 1000)}
STREAMED = ("grid", (1100, 2200))
SEQUENCES = [
    ("registers", (3, 2, 33)),
    ("registers", (5, 2, 64)),
    ("cluster", (3, 2, 96)),
    ("cluster", (3, 2, 130)),
    ("grid", (9, 3, 24)),
    ("grid", (17, 3, 64)),
    ("grid", (16, 3, 512)),
    ("grid", (600, 3, 64)),  # more rows a slice than one chunk
    ("grid", (9, 3, 1544)),  # in float32 without all weights on the chip
    *(
        (family, (drawn(20), drawn(60), SOURCE.randint(*states)))
        for family, states in (*STATES.items(), *STATES.items(), STREAMED)
    ),
]


@every_dtype
@pytest.mark.parametrize(("family", "shape"), SEQUENCES, ids=str)
def test_sanitizer_sequence(gpu, monkeypatch, dtype, family, shape) -> None:
    batch, features, state = shape
    layer = lltm_conda.LLTMLayer(features, state, bidirectional=True, device=gpu, dtype=dtype)
    input = torch.randn(4, batch, features, device=gpu, dtype=dtype)

    def results() -> list[torch.Tensor]:
        leaves = [input.clone().requires_grad_(), *layer.parameters()]
        output, (h_n, c_n) = layer(leaves[0])
        total = output.sum() + h_n.sum() + c_n.sum()
        return [output, h_n, c_n, *torch.autograd.grad(total, leaves)]

    monkeypatch.setenv("LLTM_LAYER_KERNELS", "gemm")
    want = results()
    if dtype != torch.float64:  # has no family of its own
        monkeypatch.setenv("LLTM_LAYER_KERNELS", family)
        capability = (9, 0) if family == "cluster" else (8, 0) if family == "grid" else (0, 0)
        if torch.cuda.get_device_capability(gpu) < capability:
            pytest.skip(f"{family} needs compute capability {capability[0]}.{capability[1]}")
        actual = results()
        names = ("output", "h_n", "c_n", "d_input", *(name for name, _ in layer.named_parameters()))
        assert_agree(actual, want, 4 * TOLERANCE[dtype], names, SMALLEST_SCALE)
    torch.cuda.synchronize()
