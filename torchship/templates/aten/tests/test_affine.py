"""The operator computes what the definition says, and PyTorch can work with it."""

import pytest
import torch

from own_op import affine, reference
from own_op.smoke import DTYPES, GRADIENTS, devices

FIRST = getattr(torch, DTYPES[0])
MARKS = {"cpu": (), "cuda": pytest.mark.cuda}
DEVICES = [pytest.param(name, marks=MARKS[name]) for name in devices()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n", "d", "m"), [(5, 7, 3), (64, 32, 128), (0, 4, 2), (1, 1, 1)])
def test_it_is_the_definition(n, d, m, device) -> None:
    shapes = ((n, d), (m, d), (m,))
    x, weight, bias = (torch.randn(shape, device=device).to(FIRST) for shape in shapes)
    torch.testing.assert_close(affine(x, weight, bias), reference(x, weight, bias))


def test_pytorch_accepts_the_operator() -> None:
    shapes = ((2, 3), (4, 3), (4,))
    inputs = tuple(torch.randn(s).to(FIRST).requires_grad_(GRADIENTS) for s in shapes)
    torch.library.opcheck(torch.ops.own_op.affine, inputs)


@pytest.mark.skipif(not GRADIENTS or "float64" not in DTYPES, reason="nothing to differentiate")
def test_its_gradients_are_those_of_finite_differences() -> None:
    shapes = ((2, 3), (4, 3), (4,))
    inputs = tuple(torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes)
    assert torch.autograd.gradgradcheck(affine, inputs)


def test_what_does_not_fit_is_named() -> None:
    message = r"bias must have shape \(M,\) = \(4,\), got"
    with pytest.raises(RuntimeError, match=f"own-op: {message}"):
        affine(torch.ones(2, 3), torch.ones(4, 3), torch.ones(5))
