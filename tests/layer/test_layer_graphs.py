"""CUDA graphs of whole sequences, with every family of kernels and with gemm."""

from __future__ import annotations

import pytest
import torch
from layer_cases import RESULTS, TOLERANCE, Case, leaves, loop, names, run
from op_cases import assert_agree, captured, every_dtype, gradients, like
from test_layer_families import CUDA_FAMILIES

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch.device("cuda", 0)


@pytest.mark.parametrize("kernels", ["gemm", *CUDA_FAMILIES])
@every_dtype
def test_a_captured_training_step_follows_its_inputs(gpu, monkeypatch, kernels, dtype) -> None:
    if dtype == torch.float64 and kernels != "gemm":
        pytest.skip("float64 has no family of its own")
    monkeypatch.setenv("LLTM_LAYER_KERNELS", kernels)
    case = Case(6, 16, 32, 128)
    layer = case.layer(device=gpu, dtype=dtype)
    inputs = case.inputs(layer)
    incoming = like(run(layer, *inputs))

    def step():
        outputs = run(layer, *inputs)
        return (*outputs, *torch.autograd.grad(outputs, leaves(layer, inputs), incoming))

    graph, replayed = captured(step)
    exact_layer = case.layer(dtype=torch.float64)
    exact_layer.load_state_dict(layer.state_dict())
    for seed in (11, 12):
        other = case.inputs(layer, seed)
        with torch.no_grad():
            for tensor, value in zip(inputs, other, strict=True):
                tensor.copy_(value)
        graph.replay()
        exact = tuple(t.detach().cpu().double().requires_grad_() for t in other)
        expected = loop(exact_layer, *exact)
        want = gradients(expected, leaves(exact_layer, exact), [g.cpu().double() for g in incoming])
        assert_agree(
            replayed, (*expected, *want), TOLERANCE[dtype], (*RESULTS, *names(layer, inputs))
        )


def test_compiled_with_reduced_overhead(gpu) -> None:
    torch._dynamo.reset()
    case = Case(6, 16, 32, 64)
    layer = case.layer(device=gpu, dtype=torch.float64)
    compiled = torch.compile(layer, mode="reduce-overhead", fullgraph=True)
    for seed in range(4):  # warm-up, recording, replays
        torch.compiler.cudagraph_mark_step_begin()
        input, h_0, c_0 = case.inputs(layer, seed)
        output, (h_n, c_n) = compiled(input, (h_0, c_0))
        assert_agree((output, h_n, c_n), loop(layer, input, h_0, c_0), 1e-12, RESULTS)
    torch._dynamo.reset()
