"""The contenders that extension.py does not build: PyTorch code, torch's modules, and ours."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from measurements.installed import import_installed

from ..contender import Builder, Cell, Request, State, Unavailable, prepared

MOST_COMPILED_STEPS = 64


class PlainLLTM(nn.Module):
    """Maps `(input, (h, c))` to `(new_h, new_c)`, with `weights` (3S, S+I) and `bias` (3S)."""

    def __init__(self, input_features: int, state_size: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(3 * state_size, input_features + state_size))
        self.bias = nn.Parameter(torch.empty(3 * state_size))

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        old_h, old_cell = state
        X = torch.cat([old_h, input], dim=1)
        z_i, z_o, z_c = F.linear(X, self.weights, self.bias).chunk(3, dim=1)
        new_cell = old_cell + F.elu(z_c) * torch.sigmoid(z_i)
        return torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell


def _cell(kind: str, make: Callable[[int, int], nn.Module], request: Request) -> Cell:
    module = prepared(make, request)
    return Cell(kind, module, module)


def _layer(kind: str, make: Callable[[int, int], nn.Module], request: Request) -> Cell:
    module = prepared(make, request)

    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        output, final = module(x, state)
        return output, *final

    return Cell(kind, module, call)


def _loop(builder: Builder, request: Request) -> Cell:
    """A layer that calls the cell from `builder` once per step."""
    cell = builder(request)

    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        state = tuple(part[0] for part in state)
        outputs = []
        for x_t in x.unbind(0):
            state = cell.call(x_t, state)
            outputs.append(state[0])
        return (torch.stack(outputs), *(part[None] for part in state))

    return replace(cell, call=call)


def gru(request: Request) -> Cell:
    """torch's GRU; it has no cell state, so it hands on that of the protocol."""
    module = prepared(nn.GRU, request)

    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        output, h_n = module(x, state[0])
        return output, h_n, state[1].clone()

    return Cell("gru", module, call)


def compiled_loop(request: Request) -> Cell:
    """A plain loop over the cell, unrolled by ``torch.compile``: Inductor takes a while."""
    if request.size.steps > MOST_COMPILED_STEPS:
        raise Unavailable(
            f"torch.compile would unroll {request.size.steps} steps, which takes minutes; it is "
            f"measured up to {MOST_COMPILED_STEPS}"
        )
    loop = plain_loop(request)
    return replace(loop, call=torch.compile(loop.call, fullgraph=True, dynamic=False))


def compiled_cell(request: Request) -> Cell:
    module = prepared(PlainLLTM, request)
    return Cell("lltm", module, torch.compile(module, fullgraph=True, dynamic=False))


def _ours(name: str, input_features: int, state_size: int) -> nn.Module:
    """Make a module of the installed package's class `name`, or raise :class:`Unavailable`."""
    try:
        kind = getattr(import_installed("lltm_conda"), name)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise Unavailable(
            f"lltm_conda does not load: {reason[0]} (python -m lltm_conda says more)"
        ) from error
    module: nn.Module = kind(input_features, state_size)
    return module


plain_cell = partial(_cell, "lltm", PlainLLTM)
plain_loop = partial(_loop, plain_cell)
our_cell = partial(_cell, "lltm", partial(_ours, "LLTM"))
our_loop = partial(_loop, our_cell)
our_layer = partial(_layer, "lltm", partial(_ours, "LLTMLayer"))
# An LSTM has four gates and the LLTM three, so the LSTM's products are a third larger.
lstm_cell = partial(_cell, "lstm", nn.LSTMCell)
lstm = partial(_layer, "lstm", nn.LSTM)
