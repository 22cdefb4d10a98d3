"""The bias gradient of large batches: rows in parts, whose sums a second launch adds up. It must be
right beside other streams and in graphs."""

from __future__ import annotations

import threading

import pytest
import torch
from op_cases import (
    TOLERANCE,
    assert_agree,
    captured,
    every_dtype,
    like,
    make_inputs,
    saved_for_backward,
)

import lltm_conda

pytestmark = pytest.mark.cuda

BIAS = 4
PARTED = (2048, 8, 512)


def backward_arguments(shape, gpu, dtype=torch.float32, seed=0):
    inputs = make_inputs(*shape, dtype=dtype, device=gpu, seed=seed)
    results = torch.ops.lltm.forward(*inputs)
    return inputs, (*like(results[:2]), None, *saved_for_backward(inputs, results), BIAS)


def d_bias(arguments) -> torch.Tensor:
    return torch.ops.lltm.backward(*arguments)[2]


@every_dtype
@pytest.mark.parametrize(
    "shape", [PARTED, (600, 3, 33), (3000, 8, 72), (4096, 8, 1024), (70_001, 2, 3)], ids=str
)
def test_parts_add_up_to_the_sum_over_all_rows(gpu, dtype, shape) -> None:
    inputs, arguments = backward_arguments(shape, gpu, dtype)
    exact = [t.double().requires_grad_() for t in inputs]
    incoming = [g.double() for g in arguments[:2]]
    want = torch.autograd.grad(lltm_conda.reference(*exact), exact[2], incoming)
    tolerance = TOLERANCE[dtype] * (10 if dtype == torch.float32 else 1)  # thousands of terms
    assert_agree([d_bias(arguments)], want, tolerance, ["bias"])


def test_two_streams_at_once_give_the_bits_of_one(gpu) -> None:
    cases = [backward_arguments(PARTED, gpu, seed=seed)[1] for seed in range(2)]
    alone = [d_bias(arguments) for arguments in cases]
    torch.cuda.synchronize()
    start = threading.Barrier(2)
    gradients: list[list[torch.Tensor]] = [[], []]

    def work(k: int) -> None:
        start.wait(60)
        with torch.cuda.stream(torch.cuda.Stream()):
            gradients[k] = [d_bias(cases[k]) for _ in range(200)]
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for k in range(2):
        assert len(gradients[k]) == 200
        assert all(torch.equal(alone[k], other) for other in gradients[k])


def test_graph_replays_beside_other_calls_give_the_bits_of_one(gpu) -> None:
    arguments = backward_arguments(PARTED, gpu)[1]
    other = backward_arguments(PARTED, gpu, seed=1)[1]
    expected = [d_bias(arguments), d_bias(other)]
    graph, (first, second) = captured(lambda: (d_bias(arguments), d_bias(arguments)))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(50):
        first.fill_(float("nan"))
        second.fill_(float("nan"))
        graph.replay()
        with torch.cuda.stream(side):
            beside = d_bias(other)
        torch.cuda.synchronize()
        assert torch.equal(first, expected[0]) and torch.equal(second, expected[0])
        assert torch.equal(beside, expected[1])
