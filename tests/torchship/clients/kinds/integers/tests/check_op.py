"""The counts are those of the definition, and PyTorch can work with the operator."""

import pytest
import torch

from own_op import reference, tally
from own_op.smoke import DTYPES


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=str)
def test_it_is_the_definition(dtype) -> None:
    values = torch.randint(0, 9, (20, 30)).to(dtype).t()
    for ours, right in zip(tally(values, 9), reference(values, 9), strict=True):
        assert ours.dtype == right.dtype
        assert torch.equal(ours, right)


def test_pytorch_accepts_the_operator() -> None:
    torch.library.opcheck(torch.ops.own_op.tally, (torch.arange(4), 6))


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(RuntimeError, match="own-op: a value is in none of the bins"):
        tally(torch.arange(4), 2)
    with pytest.raises(RuntimeError, match="own-op: tensors must be uint8, int8"):
        tally(torch.ones(4), 2)
