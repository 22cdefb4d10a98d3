"""On every device, the kernels compute what the definition says; PyTorch can work with them."""

import pytest
import torch
from torch import Tensor

from own_op import RMSNorm, reference, rms_norm
from own_op.smoke import DTYPES, GRADIENTS, devices

FIRST = getattr(torch, DTYPES[0])
MARKS = {"cpu": (), "cuda": pytest.mark.cuda}
DEVICES = [pytest.param(name, marks=MARKS[name]) for name in devices()]
TOLERANCES = {
    torch.float64: 1e-13,
    torch.float32: 1e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
}
# Whole vectors, odd sizes and odd addresses, long rows, more rows than blocks, nothing.
SHAPES = [(5, 64), (3, 2, 12000), (7, 1023), (2, 40000), (6000, 24), (17,), (0, 8), (4, 0)]


def tensors(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[Tensor]:
    """x, weight and the gradient of the result; x begins one element into its allocation."""
    generator = torch.Generator().manual_seed(sum(shape))
    drawn = [torch.randn(s, generator=generator) for s in (shape, shape[-1:], shape)]
    x, weight, dy = (tensor.to(device, dtype) for tensor in drawn)
    shifted = torch.empty(x.numel() + 1, dtype=dtype, device=device)[1:].view(shape).copy_(x)
    return [shifted, weight, dy] if shape[-1] % 2 else [x, weight, dy]


def run(function, x: Tensor, weight: Tensor, dy: Tensor) -> list[Tensor]:
    if not GRADIENTS:
        return [function(x, weight)]
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_the_definition(shape, dtype, device) -> None:
    inputs = tensors(shape, dtype, device)
    exact = run(reference, *(tensor.double().cpu() for tensor in inputs))
    for ours, right in zip(run(rms_norm, *inputs), exact, strict=True):
        assert (ours.shape, ours.dtype) == (right.shape, dtype)
        error = (ours.double().cpu() - right).norm()
        assert error <= TOLERANCES[dtype] * right.norm()


@pytest.mark.parametrize("device", DEVICES)
def test_every_run_gives_the_same_bits(device) -> None:
    inputs = tensors((5000, 96), FIRST, device)
    first = run(rms_norm, *inputs)
    second = run(rms_norm, *inputs)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("device", DEVICES)
def test_pytorch_accepts_the_operators(device) -> None:
    x, weight, dy = (t.requires_grad_(GRADIENTS) for t in tensors((3, 5), FIRST, device))
    operators = torch.ops.own_op
    torch.library.opcheck(operators.rms_norm, (x, weight, 1e-6))
    detached = [tensor.detach() for tensor in (dy, x, weight)]
    torch.library.opcheck(operators.rms_norm_backward, (*detached, 1e-6))


@pytest.mark.skipif(not GRADIENTS or "float64" not in DTYPES, reason="nothing to differentiate")
@pytest.mark.parametrize("device", DEVICES)
def test_its_gradients_are_those_of_finite_differences(device) -> None:
    x, weight, _ = (t.requires_grad_() for t in tensors((3, 5), torch.float64, device))
    assert torch.autograd.gradcheck(rms_norm, (x, weight))
    assert torch.autograd.gradgradcheck(rms_norm, (x, weight))


@pytest.mark.parametrize("device", DEVICES)
def test_the_module_compiles_and_loads_what_torch_saved(device) -> None:
    module = RMSNorm(24, eps=1e-5, device=device, dtype=FIRST)
    theirs = torch.nn.RMSNorm(24, eps=1e-5, device=device, dtype=FIRST)
    torch.nn.init.normal_(theirs.weight)
    module.load_state_dict(theirs.state_dict())
    x = torch.randn(4, 24).to(device, FIRST)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), theirs(x))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w: (x, w[1:]), r"weight must have shape \(D,\) = \(8,\), got \(7,\)"),
        (lambda x, w: (x, w.double()), "weight must have the dtype of x, float32, got float64"),
        (lambda x, w: (x.int(), w.int()), "tensors must be float16"),
    ],
)
def test_what_does_not_fit_is_named(change, message, device) -> None:
    with pytest.raises(RuntimeError, match=f"own-op: {message}"):
        rms_norm(*change(torch.ones(2, 8, device=device), torch.ones(8, device=device)))
