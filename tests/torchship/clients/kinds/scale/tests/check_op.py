"""On every device, the kernels compute what the definition says; PyTorch can work with them."""

import pytest
import torch

from own_op import reference, scale
from own_op.smoke import DTYPES, devices

MARKS = {"cpu": (), "cuda": pytest.mark.cuda}
DEVICES = [pytest.param(name, marks=MARKS[name]) for name in devices()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (100_000,), (), (0, 3)], ids=str)
def test_it_is_the_definition(shape, dtype, device) -> None:
    x = torch.randn(shape).to(device, dtype)
    torch.testing.assert_close(scale(x, 1.5), reference(x, 1.5))


@pytest.mark.parametrize("device", DEVICES)
def test_pytorch_can_work_with_it(device) -> None:
    x = torch.randn(3, 5, dtype=torch.float64, device=device, requires_grad=True)
    torch.library.opcheck(torch.ops.own_op.scale, (x, 1.5))
    assert torch.autograd.gradcheck(scale, (x, 1.5))
    assert torch.autograd.gradgradcheck(scale, (x, 1.5))
    compiled = torch.compile(scale, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, 1.5), reference(x, 1.5))


@pytest.mark.parametrize("device", DEVICES)
def test_what_does_not_fit_is_named(device) -> None:
    with pytest.raises(RuntimeError, match="own-op: tensors must be float16"):
        scale(torch.arange(4, device=device), 1.5)
