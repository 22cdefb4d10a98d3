"""torch's own recurrent modules, and a Python loop over any cell."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from ..contender import Builder, Cell, Request, State, prepared


def lstm_cell(request: Request) -> Cell:
    """The contender `lstmcell`: `nn.LSTMCell`, which has four gates to LLTM's three."""
    module = prepared(nn.LSTMCell, request)
    return Cell("lstm", module, module)


def layer_of(kind: str, module: nn.Module) -> Cell:
    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        output, final = module(x, state)
        return output, *final

    return Cell(kind, module, call)


def lstm(request: Request) -> Cell:
    return layer_of("lstm", prepared(nn.LSTM, request))


def loop_over(builder: Builder) -> Builder:
    def build(request: Request) -> Cell:
        cell = builder(request)

        def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
            state, outputs = tuple(s[0] for s in state), []
            for x_t in x.unbind(0):
                state = cell.call(x_t, state)
                outputs.append(state[0])
            return (torch.stack(outputs), *(s[None] for s in state))

        return replace(cell, call=call)

    return build
