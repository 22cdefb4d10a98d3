"""Compares every output and gradient of a contender with float64; `results/README.md` says how."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .contender import Cell, State
from .problem import Inputs, Linear, run_formula, tf32_linear

TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 5e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 3e-2,
}
"""For one step, on ||out - ref|| / ||ref|| of every output and gradient."""
TF32_TOLERANCE = 3e-3
"""The same for float32 with tf32 products; the report's settings say whether they were allowed."""
FARTHEST = 0.25
"""The largest relative error that is ever allowed. (An output of zeros has 1.)"""
LARGEST_PART = 2**28
"""The most elements of a sequence of states in a call of the formula; autograd keeps about ten."""


class WrongResult(RuntimeError):
    """A contender's output or gradient differs from float64; its times mean nothing."""


def short_name(name: str) -> str:
    """`weights` for `cell.weights` and for `weights_l0`: the name in the formulas."""
    return name.rsplit(".", 1)[-1].removesuffix("_l0")


def tolerance(cell: Cell, x: Tensor) -> float:
    allowed = TF32_TOLERANCE if tf32_allowed(x) else TOLERANCE[x.dtype]
    return allowed * cell.slack * (2.0 if x.dim() == 3 else 1.0)


def tf32_allowed(x: Tensor) -> bool:
    if x.dtype is not torch.float32 or not x.is_cuda:
        return False
    # cuDNN's recurrences follow their own flag, which is on by default.
    sequence = x.dim() == 3 and torch.backends.cudnn.allow_tf32
    return torch.backends.cuda.matmul.allow_tf32 or sequence


def relative_error(value: Tensor, reference: Tensor) -> float:
    """||value - reference|| / ||reference|| in float64; NaN counts as infinite.

    For a sequence (T, B, ...) it is the error of the worst step.
    """
    # The values of steps differ by orders of magnitude: one norm would show only the largest step.
    dims = (1, 2) if reference.dim() == 3 else None
    difference = torch.linalg.vector_norm(value.detach().double() - reference, dim=dims)
    scale = torch.linalg.vector_norm(reference, dim=dims)
    error = torch.where(scale > 0, difference / scale, difference).max().item()
    return error if math.isfinite(error) else math.inf


def poison(output: Tensor) -> None:
    """Leave NaN in memory that the allocator reuses next, so that an unwritten output shows."""
    _ = [output.new_full((n * output.numel(),), math.nan) for n in (1, 1, 1, 3, 3)]


def compare(
    values: Mapping[str, Tensor], reference: Mapping[str, Tensor], allowed: Mapping[str, float]
) -> float:
    """The largest error; raises :class:`WrongResult` with the name of the first wrong value."""
    if values.keys() != reference.keys():
        raise WrongResult(f"got {sorted(values)}, need {sorted(reference)}")
    worst = 0.0
    for name, expected in reference.items():
        error = relative_error(values[name].reshape(expected.shape), expected)
        if not error <= allowed[name]:
            raise WrongResult(
                f"{name} differs from float64 by {error:.2e} (relative), "
                f"allowed is {allowed[name]:.2e}"
            )
        worst = max(worst, error)
    return worst


def check_outputs(cell: Cell, inputs: Inputs, outputs: tuple[Tensor, ...]) -> None:
    """Compare outputs alone with float64, each step of a sequence from the h in `outputs`."""
    parameters = {short_name(n): p.detach().double() for n, p in cell.module.named_parameters()}
    plain = inputs.shaped(stacked=False)
    state = tuple(s.double() for s in plain.state)
    followed = outputs[0].double()
    with torch.no_grad():
        expected = run_formula(cell.kind, parameters, plain.x.double(), state, followed=followed)
    found, wanted = ({f"output{i}": o for i, o in enumerate(some)} for some in (outputs, expected))
    compare(found, wanted, dict.fromkeys(wanted, tolerance(cell, inputs.x)))


def differentiate(
    call: Callable[[Tensor, State], tuple[Tensor, ...]],
    parameters: Mapping[str, Tensor],
    x: Tensor,
    state: State,
    cotangents: State,
) -> dict[str, Tensor]:
    """The outputs, and the gradients of parameters and of inputs that require one, by name."""
    outputs = call(x, state)
    values = {f"output{i}": o.detach().clone() for i, o in enumerate(outputs)}
    leaves = {"d_input": x, **{f"d_state{i}": s for i, s in enumerate(state)}}
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    leaves |= {f"d_{name}": parameter for name, parameter in parameters.items()}
    gradients = torch.autograd.grad(outputs, list(leaves.values()), cotangents)
    return values | dict(zip(leaves, (g.clone() for g in gradients), strict=True))


def check(cell: Cell, inputs: Inputs, *, input_gradients: bool = True) -> float:
    """Run forward and backward once, compare with float64, return the largest relative error.

    With `input_gradients` false only the parameters need gradients, as in the tutorial's protocol.
    Raises :class:`WrongResult` for a wrong value, or one that was not written.
    """
    named = {short_name(n): p for n, p in cell.module.named_parameters()}
    given = inputs.shaped(cell.stacked)
    x, state = given.detached(requires_grad=input_gradients)
    poison(inputs.grad_output)
    cell.new_step()
    values = differentiate(cell.call, named, x, state, (given.grad_output, *given.grad_state))
    formula = partial(_formula, cell.kind, named, inputs, values["output0"], input_gradients)
    reference = formula(torch.float64, F.linear)
    allowed = dict.fromkeys(reference, tolerance(cell, inputs.x))
    try:
        return compare(values, reference, allowed)
    except WrongResult:
        if inputs.x.dim() == 2 or inputs.x.dtype is torch.float64:
            raise
    linear = tf32_linear if tf32_allowed(inputs.x) else F.linear
    for name, value in formula(inputs.x.dtype, linear).items():
        own_error = relative_error(value, reference[name])
        allowed[name] = max(allowed[name], min(2 * own_error, FARTHEST))
    return compare(values, reference, allowed)


def _formula(
    kind: str,
    named: Mapping[str, Tensor],
    inputs: Inputs,
    followed: Tensor,
    input_gradients: bool,
    dtype: torch.dtype,
    linear: Linear,
) -> dict[str, Tensor]:
    """In parts of the batch: its rows share nothing but the parameters' gradients."""

    def leaf(tensor: Tensor, requires_grad: bool) -> Tensor:
        return tensor.detach().to(dtype, copy=True).requires_grad_(requires_grad)

    parameters = {name: leaf(parameter, True) for name, parameter in named.items()}
    plain = inputs.shaped(stacked=False)
    batched = (plain.x, *plain.state, followed, plain.grad_output, *plain.grad_state)
    rows = max(1, LARGEST_PART // plain.grad_output[..., 0, :].numel())
    parts = []
    for x, h, c, outputs, *grads in zip(*(t.split(rows, dim=-2) for t in batched), strict=True):
        call = partial(run_formula, kind, parameters, linear=linear, followed=outputs.to(dtype))
        state = tuple(leaf(s, input_gradients) for s in (h, c))
        cotangents = tuple(grad.to(dtype) for grad in grads)
        part = differentiate(call, parameters, leaf(x, input_gradients), state, cotangents)
        parts.append(part)
    joined = parts[0]
    for part in parts[1:]:
        for name, value in part.items():
            of_parameter = name.removeprefix("d_") in named
            before = joined[name]
            joined[name] = before + value if of_parameter else torch.cat((before, value), dim=-2)
    return joined
