"""Inputs, entry points, oracles and tolerances that the op's tests share.

Tolerances
----------
Every result is compared with ``lltm_conda.reference`` evaluated in float64 from the same inputs
(already rounded to the dtype under test), as a relative norm: ``|got - want| / |want|``.

* float64, 1e-12: a few thousand roundings of 1.1e-16 each; GEMMs may sum in another order.
* float32, 1e-5: the same with 6.0e-8.
* float16, 5e-3: inputs are exact and the arithmetic is float32, but pre-activations, gradients of
  pre-activations and results are stored with 11 bits (4.9e-4 each), one after another.
* bfloat16, 3e-2: the same with 8 bits (3.9e-3 each).

Random inputs give entries of order one. Where by chance they cancel (a batch of 1 with a state of
1), rounding relative to the *result* has no bound, so the random tests measure against at least
``SMALLEST_SCALE`` an entry. Tests at fixed, larger shapes use the plain relative norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

import lltm_conda

Entry = Callable[..., tuple[Tensor, Tensor]]

TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 3e-2,
}
SMALLEST_SCALE = 0.25

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
quick = settings(max_examples=25, deadline=None, database=None)


def since(minor: str, feature: str) -> pytest.MarkDecorator:
    """Skip below the torch version ("2.6") in which a feature appeared."""
    floor = tuple(int(part) for part in minor.split("."))
    return pytest.mark.skipif(floor > TORCH, reason=f"{feature} needs torch >= {minor}")


class Inputs(NamedTuple):
    """The five arguments of the op, in its order."""

    input: Tensor
    weights: Tensor
    bias: Tensor
    old_h: Tensor
    old_cell: Tensor


NAMES = Inputs._fields


def make_inputs(
    batch: int = 3,
    features: int = 4,
    state: int = 5,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    seed: int = 0,
    bias_rows: bool = False,
    requires_grad: bool = False,
) -> Inputs:
    """Random inputs of order one, the same on every device. ``bias_rows``: bias of (1, 3S)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    tensors = (
        normal(batch, features),
        normal(3 * state, state + features) / max(state + features, 1) ** 0.5,
        normal(*((1, 3 * state) if bias_rows else (3 * state,))),
        normal(batch, state),
        normal(batch, state),
    )
    return Inputs(*(t.to(device, dtype).requires_grad_(requires_grad) for t in tensors))


def like(tensors: Sequence[Tensor], seed: int = 1) -> tuple[Tensor, ...]:
    """Random tensors of the same shape, dtype and device: incoming gradients."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.device, t.dtype)
        for t in tensors
    )


def in_float64(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The same values as float64 leaves on the CPU, ready for the reference."""
    return tuple(
        t.detach().to("cpu", torch.float64).clone().requires_grad_(t.requires_grad) for t in tensors
    )


@st.composite
def shapes(draw: st.DrawFn, smallest_batch: int = 0) -> tuple[int, int, int]:
    """(batch, features, state): empty, one, odd, and either side of a vector's width."""
    batches = [b for b in (0, 1, 2, 3, 5, 7, 16, 33) if b >= smallest_batch]
    return (
        draw(st.sampled_from(batches)),
        draw(st.sampled_from((1, 2, 3, 5, 8, 17))),
        draw(st.sampled_from((1, 2, 3, 5, 7, 8, 9, 16, 17, 33))),
    )


seeds = st.integers(0, 2**31 - 1)


def saved_for_backward(inputs: Sequence[Tensor], results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What the raw backward op takes beside incoming gradients and `needs`."""
    input, weights, bias, old_h, _ = inputs
    _, new_cell, gates = results
    return input, weights, bias, old_h, new_cell, gates


# Entry points: every door to the op that returns (new_h, new_cell).


def through_function(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    return lltm_conda.lltm(*inputs)


def through_apply(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    return lltm_conda.LLTMFunction.apply(*inputs)


def through_raw_op(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    new_h, new_cell, _ = torch.ops.lltm.forward(*inputs)
    return new_h, new_cell


def through_module(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    return module_entry(inputs[0].shape[-1], inputs[3].shape[-1])(*inputs)


def module_entry(features: int, state: int) -> Entry:
    """The module as a function of the five inputs, with its skeleton made beforehand."""
    skeleton = lltm_conda.LLTM(features, state, device="meta")

    def entry(
        input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        parameters = {"weights": weights, "bias": bias.reshape(-1)}
        return torch.func.functional_call(skeleton, parameters, (input, (old_h, old_cell)))

    return entry


def prepared(entry: Entry, features: int = 4, state: int = 5) -> Entry:
    """The entry for use inside vmap or a compiler, where no module can be made."""
    return module_entry(features, state) if entry is through_module else entry


ENTRIES: tuple[Entry, ...] = (
    through_function,
    through_apply,
    through_raw_op,
    through_module,
)
every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.__name__)


def reference_gates(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> Tensor:
    """The pre-activations (z_i, z_o, z_c) as (batch, 3, state)."""
    z = torch.nn.functional.linear(torch.cat([old_h, input], 1), weights, bias.reshape(-1))
    return z.reshape(input.shape[0], 3, old_h.shape[1])


def reference_with_gates(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the raw op returns, from plain PyTorch."""
    return (*lltm_conda.reference(*inputs), reference_gates(*inputs))


def gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    incoming: Sequence[Tensor],
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """Gradients of all inputs; zeros for an input that the outputs do not depend on."""
    slopes = torch.autograd.grad(
        outputs, inputs, incoming, allow_unused=True, create_graph=create_graph
    )
    return tuple(
        torch.zeros_like(i) if g is None else g for g, i in zip(slopes, inputs, strict=True)
    )


def relative_error(actual: Tensor, want: Tensor, smallest_scale: float = 0.0) -> float:
    """|got - want| / |want| in float64; NaN counts as infinitely wrong."""
    assert actual.shape == want.shape, f"shape {tuple(actual.shape)}, expected {tuple(want.shape)}"
    if want.numel() == 0:
        return 0.0
    actual, want = (t.detach().to("cpu", torch.float64) for t in (actual, want))
    scale = max(want.norm().item(), smallest_scale * want.numel() ** 0.5)
    distance = (actual - want).norm().item()
    if distance == 0.0:
        return 0.0
    error = distance / scale if scale else float("inf")
    return error if error == error else float("inf")


def assert_agree(
    actual: Sequence[Tensor],
    want: Sequence[Tensor],
    tolerance: float,
    names: Sequence[str],
    smallest_scale: float = 0.0,
) -> None:
    """Fail with the name of the first tensor whose relative norm error is above the tolerance."""
    for g, w, name in zip(actual, want, names, strict=True):
        error = relative_error(g, w, smallest_scale)
        assert error <= tolerance, f"{name}: relative error {error:.3g} > {tolerance:.3g}"


def captured(step: Callable[[], Sequence[Tensor]]) -> tuple[torch.cuda.CUDAGraph, Sequence[Tensor]]:
    """A CUDA graph of `step`, and the tensors in which every replay leaves the results."""
    side = torch.cuda.Stream()  # what must happen once happens on a side stream, as PyTorch asks
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    return graph, results


def launches(step: Callable[[], object]) -> list[str]:
    """Names of what `step` runs on the device."""
    step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    cuda = torch.autograd.DeviceType.CUDA
    return [event.name for event in profiler.events() if event.device_type == cuda]
