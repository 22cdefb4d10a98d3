"""Many random calls on two streams at once: none hangs, and none drifts from the fallback.

LLTM_SOAK_CALLS says how many (the release runs 10,000), LLTM_SOAK_SEED which.
"""

from __future__ import annotations

import os
import random

import pytest
import torch
from layer_cases import RESULTS, TOLERANCE, Case, leaves, names, run
from op_cases import SMALLEST_SCALE, assert_agree, gradients, like

pytestmark = [pytest.mark.cuda, pytest.mark.slow]

CALLS = int(os.environ.get("LLTM_SOAK_CALLS", "300"))
STATES = (1, 7, 32, 64, 100, 128, 256, 512, 768, 1024)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def random_case(source: random.Random) -> tuple[Case, torch.dtype]:
    state = source.choice(STATES)
    case = Case(
        source.choice((1, 2, 5, 16, 33)),
        source.choice((1, 2, 5, 16, 64, 130)),
        source.choice((1, 8, 33, 128)),
        state,
        bidirectional=source.random() < 0.2,
        bias=source.random() < 0.8,
        given_state=source.random() < 0.5,
    )
    return case, source.choice(DTYPES)


def results(case, layer, inputs):
    outputs = run(layer, *inputs)
    return (*outputs, *gradients(outputs, leaves(layer, inputs), like(outputs)))


def test_random_calls_on_two_streams_at_once(monkeypatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    device = torch.device("cuda", 0)
    source = random.Random(int(os.environ.get("LLTM_SOAK_SEED", "7")))
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    done = 0
    while done < CALLS:
        problems = []
        for stream in streams:
            case, dtype = random_case(source)
            layer = case.layer(device=device, dtype=dtype)
            problems.append((stream, case, layer, case.inputs(layer, source.randrange(2**31))))
        torch.cuda.synchronize()
        monkeypatch.setenv("LLTM_LAYER_KERNELS", "")
        found = []
        for stream, case, layer, inputs in problems:  # both are queued before either has ended
            with torch.cuda.stream(stream):
                found.append(results(case, layer, inputs))
        torch.cuda.synchronize()
        monkeypatch.setenv("LLTM_LAYER_KERNELS", "fallback")
        for (_, case, layer, inputs), got in zip(problems, found, strict=True):
            want = results(case, layer, inputs)
            tolerance = TOLERANCE[layer.weights_l0.dtype]
            called = (*RESULTS, *names(layer, inputs))
            assert_agree(got, want, tolerance, called, SMALLEST_SCALE)
        done += len(problems)
