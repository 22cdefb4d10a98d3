"""The tutorial's benchmark script: so many steps on one set of tensors, and one line.

``python -m benchmarks tutorial python|cpp|cuda``. python is the plain definition, cpp our op on the
CPU, cuda our op on the GPU; ``--baseline`` takes the tutorial-style extension instead.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import torch

from .baselines import Builder, Request, Unavailable, extension, ours
from .baselines.plain import plain_cell
from .problem import make_inputs
from .schema import Size
from .timing import synchronise

LINE = "Forward: {:.3f} us | Backward: {:.3f} us"


def builder(implementation: str, baseline: bool) -> tuple[Builder, str]:
    """Which contender an implementation means, and on which device."""
    if implementation == "python":
        return plain_cell, "cpu"
    device = "cuda" if implementation == "cuda" else "cpu"
    if not baseline:
        return ours.cell, device
    return (extension.cuda_cell if device == "cuda" else extension.cpp_cell), device


def run(arguments: argparse.Namespace) -> str:
    """Time the steps one by one and return the tutorial's line: mean microseconds.

    Raises:
        ValueError: the implementation cannot run here.
    """
    build, device = builder(arguments.implementation, arguments.baseline)
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"cuda needs a GPU and a CUDA build of torch; torch is {torch.__version__} and sees "
            "none: use python or cpp"
        )
    size = Size(arguments.batch_size, arguments.features, arguments.state_size)
    try:
        cell = build(Request(size, torch.float32, device))
    except Unavailable as error:
        raise ValueError(str(error)) from error
    x, state = make_inputs(size, torch.float32, device, seed=0).detached(requires_grad=False)

    def step() -> tuple[float, float]:
        start = perf_counter()
        new_h, new_c = cell.call(x, state)
        synchronise(device)
        middle = perf_counter()
        (new_h.sum() + new_c.sum()).backward()
        synchronise(device)
        return middle - start, perf_counter() - middle

    step()  # the tutorial's warm-up: initialises CUDA
    times = [step() for _ in range(arguments.runs)]
    forward, backward = (sum(column) * 1e6 / len(times) for column in zip(*times, strict=True))
    return LINE.format(forward, backward)
