"""torch's own recurrent modules, and a Python loop over any cell."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ..problem import Cell, State, randomise
from . import Builder, Request


def lstm_cell(request: Request) -> Cell:
    """The contender `lstmcell`: `nn.LSTMCell`, four gates to LLTM's three."""
    size = request.size
    module = nn.LSTMCell(size.inputs, size.state, device=request.device, dtype=request.dtype)
    randomise(module, size.state, request.seed)
    return Cell("lstm", module, module)


def lstm(request: Request) -> Cell:
    """The contender `lstm`: `nn.LSTM` (cuDNN, or oneDNN on the CPU)."""
    size = request.size
    module = nn.LSTM(size.inputs, size.state, device=request.device, dtype=request.dtype)
    randomise(module, size.state, request.seed)

    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        output, final = module(x, state)
        return output, *final

    return Cell("lstm", module, call, stacked=True)


def gru(request: Request) -> Cell:
    """The contender `gru`: `nn.GRU`, whose state is h alone."""
    size = request.size
    module = nn.GRU(size.inputs, size.state, device=request.device, dtype=request.dtype)
    randomise(module, size.state, request.seed)

    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        return module(x, *state)  # type: ignore[no-any-return]

    return Cell("gru", module, call, stacked=True)


def loop_over(builder: Builder) -> Builder:
    """A builder of the loop over the cell that `builder` makes."""

    def build(request: Request) -> Cell:
        cell = builder(request)

        def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
            outputs = []
            for x_t in x.unbind(0):
                state = cell.call(x_t, state)
                outputs.append(state[0])
            return (torch.stack(outputs), *state)

        return replace(cell, call=call)

    return build
