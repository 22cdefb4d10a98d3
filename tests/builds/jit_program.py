"""Builds the op just in time and prints what happened as JSON; the tests run it.

    jit_program.py STEP ...

Every step adds one entry to the answer: what it returned, or the text of its BuildError.
"""

import json
import os
import sys
import warnings

os.environ["LLTM_CONDA_LOAD"] = "0"

import torch

import lltm_conda
from lltm_conda import jit

warnings.simplefilter("ignore")


def attempt(**arguments):
    try:
        return str(jit.load(**arguments).paths[0])
    except jit.BuildError as error:
        return str(error)


def largest_error(device):
    """Of the op and its gradients against the definition, relative to the largest entry."""
    torch.manual_seed(0)
    operands = [
        torch.randn(size, dtype=torch.float64, device=device, requires_grad=True)
        for size in ((5, 3), (12, 7), (12,), (5, 4), (5, 4))
    ]

    def results(function):
        new_h, new_cell = function(*operands)
        number = new_h.sin().sum() + new_cell.square().sum()
        return [new_h, new_cell, *torch.autograd.grad(number, operands)]

    pairs = zip(results(lltm_conda.lltm), results(lltm_conda.reference), strict=True)
    return max(
        float((result - expected).abs().max() / expected.abs().max()) for result, expected in pairs
    )


STEPS = {
    "load": attempt,
    "load_cuda": lambda: attempt(with_cuda=True),
    "error": lambda: largest_error("cpu"),
    "cuda_error": lambda: largest_error("cuda"),
    "cuda_facts": lambda: list(jit.load().cuda.cuda_archs),
}
answer = {step: STEPS[step]() for step in sys.argv[1:]}
print("ANSWER " + json.dumps(answer))
