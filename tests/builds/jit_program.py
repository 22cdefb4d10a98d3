"""Builds the op just in time and prints what happened as JSON; the tests run it.

    jit_program.py STEP ...

Every step adds one entry to the answer: what it returned, or the text of its BuildError.
"""

import concurrent.futures
import json
import os
import sys
import warnings
from pathlib import Path

if "aot" not in sys.argv:
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


def threads():
    """The folders that eight threads at once get."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(attempt) for _ in range(8)]
        return sorted({future.result() for future in futures})


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


def public_names():
    """Those of the package that are not there, or are modules in the place of what they hold."""
    values = {name: getattr(lltm_conda, name) for name in lltm_conda.__all__}
    return [name for name, value in values.items() if isinstance(value, type(sys))]


def module():
    """One step of the module, imported from where the documentation says."""
    from lltm_conda import LLTM

    return list(LLTM(3, 4)(torch.ones(2, 3))[0].shape)


def broken_compiler():
    """A build with a compiler that tells its version and compiles nothing."""
    script = Path("broken-c++").resolve()
    script.write_text(
        '#!/bin/sh\ncase $1 in -*v*) exec c++ "$@" ;; esac\necho out of order\nexit 1\n'
    )
    script.chmod(0o755)
    os.environ["CXX"] = str(script)
    try:
        return attempt()
    finally:
        del os.environ["CXX"]


STEPS = {
    "aot": lambda: lltm_conda.__file__,
    "broken_compiler": broken_compiler,
    "load": attempt,
    "load_verbose": lambda: attempt(verbose=True),
    "load_other": lambda: attempt(with_cuda=False),
    "load_cuda": lambda: attempt(with_cuda=True),
    "error": lambda: largest_error("cpu"),
    "cuda_error": lambda: largest_error("cuda"),
    "cuda_facts": lambda: list(jit.load().cuda.cuda_archs),
    "module": module,
    "public_names": public_names,
    "threads": threads,
}
answer = {step: STEPS[step]() for step in sys.argv[1:]}
print("ANSWER " + json.dumps(answer))
