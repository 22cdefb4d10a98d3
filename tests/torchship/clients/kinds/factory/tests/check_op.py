"""The factory makes what the definition says, and PyTorch can work with it."""

import pytest
import torch

from own_op import ramp, reference
from own_op.smoke import DTYPES


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=str)
@pytest.mark.parametrize("count", [0, 1, 100])
def test_it_is_the_definition(count, dtype, device) -> None:
    arguments = (count, 3.0, dtype, torch.device(device))
    torch.testing.assert_close(ramp(*arguments), reference(*arguments))


def test_pytorch_accepts_the_operator() -> None:
    options = {"dtype": torch.float32, "device": torch.device("cpu")}
    torch.library.opcheck(torch.ops.own_op.ramp, (4, 0.5), options)


def test_it_compiles() -> None:
    def doubled(x):
        return x + ramp(x.shape[0], 0.5, torch.float32, x.device)

    x = torch.ones(6)
    compiled = torch.compile(doubled, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), doubled(x))


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(RuntimeError, match="own-op: count must be at least 0, got -1"):
        ramp(-1, 1.0, torch.float32, torch.device("cpu"))
