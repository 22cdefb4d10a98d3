"""The request for a contender, the contender itself, and its inputs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from .schema import Size

State = tuple[Tensor, ...]
"""(h, c), each (B, S); for a sequence each (1, B, S)."""

DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
"""Dtypes by their names in reports; `tf32` is float32 with torch's flags for tf32 set."""


class Unavailable(RuntimeError):
    """The contender cannot run here, or the protocol cannot measure it; the message says why."""


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
    """The formula that the contender computes: a key of :data:`check.STEPS`."""
    module: nn.Module
    call: Callable[[Tensor, State], tuple[Tensor, ...]]
    """Maps input and state to (new_h, new_c), or for a sequence to (output, h_n, c_n)."""
    capturable: bool = True
    """Whether a CUDA graph can capture the call."""
    slack: float = 1.0
    """A factor on the tolerance, above 1 only for a known flaw of a baseline."""


Builder = Callable[[Request], Cell]
"""Makes a contender, or raises :class:`Unavailable` if it cannot run here."""


def prepared(kind: Callable[[int, int], nn.Module], request: Request) -> nn.Module:
    """Make a module; draw its parameters uniformly from [-1/sqrt(S), 1/sqrt(S)], like nn.LSTM."""
    with torch.device(request.device):  # a CPU would take seconds to draw what is drawn again
        module = kind(request.size.inputs, request.size.state)
    module.to(dtype=request.dtype)
    bound = 1.0 / math.sqrt(request.size.state)
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            rng = torch.Generator(request.device).manual_seed(request.seed + index)
            parameter.uniform_(-bound, bound, generator=rng)
    return module


@dataclass(frozen=True)
class Inputs:
    """One set of inputs, and random cotangents for the outputs.

    For a step `x` is (B, I), and the outputs are the new state. For a sequence `x` is (T, B,
    I), and the outputs are the h of all steps (T, B, S), then the final state.
    """

    x: Tensor
    state: State
    cotangents: State

    def detached(self, *, requires_grad: bool) -> tuple[Tensor, State]:
        """New leaves of autograd that share the memory of `x` and `state`."""
        x = self.x.detach().requires_grad_(requires_grad)
        return x, tuple(s.detach().requires_grad_(requires_grad) for s in self.state)


def make_inputs(size: Size, dtype: torch.dtype, device: str, seed: int) -> Inputs:
    """Seed a generator, and draw one set of inputs from the normal distribution."""
    rng = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.float32).to(dtype)

    is_sequence = size.steps > 1
    steps = (size.steps,) if is_sequence else ()
    layers = (1,) if is_sequence else ()
    x = draw(*steps, size.batch, size.inputs)
    d_output = draw(*steps, size.batch, size.state)
    states = [draw(*layers, size.batch, size.state) for _ in range(4 if is_sequence else 3)]
    h, c, *d_states = states
    # The LLTM never forgets, so its gradients grow with the sequence: after some 800 steps,
    # float16 cannot hold the gradients of cotangents of size one. So float16 cotangents are
    # divided by T.
    scale = size.steps if dtype is torch.float16 else 1
    return Inputs(x, (h, c), tuple(grad / scale for grad in (d_output, *d_states)))


class Calls:
    """The calls of a contender. In ``plain()`` the parameters need gradients, the inputs do not."""

    def __init__(self, cell: Cell, inputs: Inputs) -> None:
        x, state = inputs.detached(requires_grad=True)
        self.forward = partial(cell.call, x, state)
        self.plain = partial(cell.call, *inputs.detached(requires_grad=False))
        self.leaves = [x, *state, *cell.module.parameters()]
        self.cotangents = inputs.cotangents
        self.steps = x.shape[0] if x.dim() == 3 else 1

    def backward(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, self.leaves, self.cotangents)
