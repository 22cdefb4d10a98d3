"""Runs the installed op on the CPU against its definition and prints where the package lies.

A program, run by the tests with the Python of an environment that they made.
"""

import torch

import lltm_conda

torch.manual_seed(0)
operands = [
    torch.randn(size, dtype=torch.float64, requires_grad=True)
    for size in ((5, 3), (12, 7), (12,), (5, 4), (5, 4))
]


def results(function):
    new_h, new_cell = function(*operands)
    number = new_h.sin().sum() + new_cell.square().sum()
    return [new_h, new_cell, *torch.autograd.grad(number, operands)]


for result, expected in zip(results(lltm_conda.lltm), results(lltm_conda.reference), strict=True):
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-13)
print(f"computed right with {lltm_conda.__file__}")
