"""The contenders that need no compiler of ours: plain PyTorch, torch's own modules, the package."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..contender import Builder, Cell, Request, State, Unavailable, prepared
from ..machine import ROOT


class PlainLLTM(nn.Module):
    """`(input, (h, c)) -> (new_h, new_c)`, parameters `weights` (3S, S+I) and `bias` (3S)."""

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


def _cell(kind: str, make: Callable[[int, int], nn.Module]) -> Builder:
    def build(request: Request) -> Cell:
        module = prepared(make, request)
        return Cell(kind, module, module)

    return build


def _layer(kind: str, make: Callable[[int, int], nn.Module]) -> Builder:
    def build(request: Request) -> Cell:
        module = prepared(make, request)

        def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
            output, final = module(x, state)
            return output, *final

        return Cell(kind, module, call)

    return build


def compiled_cell(request: Request) -> Cell:
    module = prepared(PlainLLTM, request)
    return Cell("lltm", module, torch.compile(module, fullgraph=True, dynamic=False))


def reduce_overhead_cell(request: Request) -> Cell:
    """The contender `compile-reduce-overhead`: the generated kernels in CUDA graphs."""
    if request.device == "cpu":
        raise Unavailable(
            "reduce-overhead needs CUDA graphs and equals the default mode on the CPU: use compile"
        )
    module = prepared(PlainLLTM, request)
    call = torch.compile(module, mode="reduce-overhead", fullgraph=True, dynamic=False)
    new_step = torch.compiler.cudagraph_mark_step_begin
    # Not capturable: one CUDA graph cannot capture another.
    return Cell("lltm", module, call, capturable=False, new_step=new_step)


def loop_over(builder: Builder) -> Builder:
    """A Python loop over a cell, one call a step."""

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


def _ours(name: str, input_features: int, state_size: int) -> nn.Module:
    """From the package under test, through the glue that its loader chose in this process."""
    # `python -m benchmarks` puts the repository first on the path. Its sources may lack binaries,
    # so the installed package must come before it.
    sys.path.sort(key=lambda entry: Path(entry or ".").resolve() == ROOT)
    try:
        kind = getattr(importlib.import_module("lltm_conda"), name)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise Unavailable(
            f"lltm_conda does not load: {reason[0]} (python -m lltm_conda says more)"
        ) from error
    return kind(input_features, state_size)


plain_cell = _cell("lltm", PlainLLTM)
our_cell = _cell("lltm", partial(_ours, "LLTM"))
our_layer = _layer("lltm", partial(_ours, "LLTMLayer"))
# An LSTM has four gates to LLTM's three.
lstm_cell = _cell("lstm", nn.LSTMCell)
lstm = _layer("lstm", nn.LSTM)
