"""A contender: how it is requested, and the function that is called and timed."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .schema import Size

State = tuple[Tensor, ...]
"""(h, c), each (B, S)."""

OURS = "ours"
OURS_AGAIN = "ours-again"
REDUCE_OVERHEAD = "compile-reduce-overhead"


class Unavailable(RuntimeError):
    """This contender cannot run, or be measured, here; the message says what would change that."""


@dataclass(frozen=True)
class Request:
    size: Size
    dtype: torch.dtype
    device: str
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """A contender at one size: the function to call, and the module that owns the parameters."""

    kind: str
    """Which formulas it computes: a key of :data:`problem.STEPS`."""
    module: nn.Module
    call: Callable[[Tensor, State], tuple[Tensor, ...]]
    """Returns the output, then the rest of the final state, as :func:`problem.run_formula` does."""
    capturable: bool = True
    """Whether it can run inside a CUDA graph capture."""
    new_step: Callable[[], None] = lambda: None
    """Called before every step; reduce-overhead needs it to reuse its graphs' outputs."""
    stacked: bool = False
    """Whether states are (1, B, S), like those of a module with one layer."""
    slack: float = 1.0
    """Factor on the tolerance; above 1 only for a known flaw of a baseline."""


Builder = Callable[[Request], Cell]
"""Raises :class:`Unavailable` if the contender cannot run here."""


def prepared(kind: Callable[[int, int], nn.Module], request: Request) -> nn.Module:
    """Make a module, and draw its parameters uniformly from +-1/sqrt(S), as nn.LSTM does."""
    module = kind(request.size.inputs, request.size.state)
    module.to(device=request.device, dtype=request.dtype)
    bound = 1.0 / math.sqrt(request.size.state)
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            rng = torch.Generator(request.device).manual_seed(request.seed + index)
            value = torch.rand(parameter.shape, generator=rng, device=parameter.device)
            parameter.copy_((2 * value - 1) * bound)
    return module
