"""The cell in plain Python: a module of the calls that one would write first."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..problem import Cell, randomise
from . import Request


class PlainLLTM(nn.Module):
    """`(input, (h, c)) -> (new_h, new_c)`, parameters `weights` (3S, S+I) and `bias` (3S)."""

    def __init__(self, input_features: int, state_size: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(3 * state_size, input_features + state_size))
        self.bias = nn.Parameter(torch.empty(3 * state_size))

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        old_h, old_cell = state
        X = torch.cat([old_h, input], dim=1)
        gates = F.linear(X, self.weights, self.bias).chunk(3, dim=1)
        input_gate = torch.sigmoid(gates[0])
        output_gate = torch.sigmoid(gates[1])
        candidate = F.elu(gates[2])
        new_cell = old_cell + candidate * input_gate
        new_h = torch.tanh(new_cell) * output_gate
        return new_h, new_cell


def plain_module(request: Request) -> PlainLLTM:
    """A module with the request's random parameters."""
    module = PlainLLTM(request.size.inputs, request.size.state)
    module.to(device=request.device, dtype=request.dtype)
    randomise(module, request.size.state, request.seed)
    return module


def plain_cell(request: Request) -> Cell:
    """The contender `python`."""
    module = plain_module(request)
    return Cell("lltm", module, module)
