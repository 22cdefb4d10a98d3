"""CUDA graphs: captured by hand, by PyTorch's helper, and by torch.compile."""

from __future__ import annotations

import pytest
import torch
from op_cases import (
    NAMES,
    TOLERANCE,
    assert_agree,
    captured,
    every_dtype,
    launches,
    like,
    make_inputs,
)

import lltm_conda

pytestmark = pytest.mark.cuda

RESULTS = ("new_h", "new_cell")


def step_of_training(inputs, incoming):
    outputs = lltm_conda.lltm(*inputs)
    return (*outputs, *torch.autograd.grad(outputs, inputs, incoming))


@every_dtype
def test_captured_step_follows_its_inputs(gpu, dtype) -> None:
    inputs = make_inputs(16, 32, 128, dtype=dtype, device=gpu, requires_grad=True)
    incoming = like(inputs[3:])
    graph, captured_results = captured(lambda: step_of_training(inputs, incoming))
    for seed in (11, 12):
        other = make_inputs(16, 32, 128, dtype=dtype, device=gpu, seed=seed)
        with torch.no_grad():
            for tensor, value in zip(inputs, other, strict=True):
                tensor.copy_(value)
        graph.replay()
        exact = [t.cpu().double().requires_grad_() for t in other]
        expected = lltm_conda.reference(*exact)
        expected = (
            *expected,
            *torch.autograd.grad(expected, exact, [g.cpu().double() for g in incoming]),
        )
        assert_agree(captured_results, expected, TOLERANCE[dtype], (*RESULTS, *NAMES))


def test_captured_chain_of_steps(gpu) -> None:
    inputs = make_inputs(16, 32, 128, device=gpu)

    def chain(step):
        x, w, b, h, c = inputs
        for _ in range(10):
            h, c = step(x, w, b, h, c)
        return h, c

    graph, last_state = captured(lambda: chain(lltm_conda.lltm))
    graph.replay()
    assert_agree(last_state, chain(lltm_conda.reference), 1e-12, RESULTS)


def test_a_captured_step_takes_more_launches_where_these_are_quicker_on_the_device(gpu) -> None:
    inputs = make_inputs(22, 66, 1221, dtype=torch.bfloat16, device=gpu)
    eager = launches(lambda: lltm_conda.lltm(*inputs))
    graph, results = captured(lambda: lltm_conda.lltm(*inputs))
    replayed = launches(graph.replay)
    assert len(eager) == 1, eager
    assert len(replayed) >= 3, replayed
    expected = lltm_conda.reference(*[tensor.double() for tensor in inputs])
    assert_agree(results, expected, TOLERANCE[torch.bfloat16], RESULTS)


class Step(torch.nn.Module):
    def __init__(self, device) -> None:
        super().__init__()
        self.cell = lltm_conda.LLTM(8, 16, device=device, dtype=torch.float64)

    def forward(self, input, h, c):
        return self.cell(input, (h, c))


def test_make_graphed_callables(gpu) -> None:
    step = Step(gpu)
    sample = make_inputs(4, 8, 16, device=gpu, requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(step, (sample.input, sample.old_h, sample.old_cell))
    x, _, _, h, c = make_inputs(4, 8, 16, device=gpu, seed=5, requires_grad=True)
    outputs = graphed(x, h, c)
    incoming = like(outputs)
    leaves = (x, step.cell.weights, step.cell.bias, h, c)
    expected = lltm_conda.reference(*leaves)
    assert_agree(outputs, expected, 1e-12, RESULTS)
    torch.autograd.backward(outputs, incoming)
    want = torch.autograd.grad(expected, leaves, incoming)
    assert_agree([t.grad for t in leaves], want, 1e-12, NAMES)


def test_compiled_with_reduced_overhead(gpu) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lltm_conda.lltm, mode="reduce-overhead", fullgraph=True)
    for seed in range(4):  # warm-up, recording, replays
        torch.compiler.cudagraph_mark_step_begin()
        inputs = make_inputs(16, 32, 128, device=gpu, seed=seed, requires_grad=True)
        outputs = compiled(*inputs)
        incoming = like(outputs)
        actual = [t.clone() for t in torch.autograd.grad(outputs, inputs, incoming)]
        exact = [t.detach().requires_grad_() for t in inputs]
        expected = lltm_conda.reference(*exact)
        assert_agree(outputs, expected, 1e-12, RESULTS)
        assert_agree(actual, torch.autograd.grad(expected, exact, incoming), 1e-12, NAMES)
    torch._dynamo.reset()
