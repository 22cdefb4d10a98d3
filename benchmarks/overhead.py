"""What the tutorial's protocol costs before any cell is computed: a bound for every cell in it.

Each step below is a module of the cell's parameters, timed as a contender is, and computes nothing:

- `sums`: hands out two tensors; what is left are the two sums, their backward, and the waiting;
- `empty`: an autograd function that hands out two tensors, and in backward two gradients;
- `least`: one that allocates its results, and launches one kernel each way, as any cell must.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import machine
from .baselines import OURS, Request, ours
from .problem import Cell, State, make_inputs
from .schema import Report, Result, Size
from .session import Options, new_report
from .stats import summarise
from .timing import interleave, round_medians, tutorial

SIZE = Size(16, 32, 128)


class _Step(nn.Module):
    """Parameters like the cell's, and tensors like its results."""

    def __init__(self, size: Size, device: str) -> None:
        super().__init__()
        width = 3 * size.state
        self.weights = nn.Parameter(torch.zeros(width, size.state + size.inputs, device=device))
        self.bias = nn.Parameter(torch.zeros(width, device=device))
        self.h = torch.zeros(size.batch, size.state, device=device)
        self.gradients = (torch.zeros_like(self.weights), torch.zeros_like(self.bias))


class _Sums(_Step):
    def __init__(self, size: Size, device: str) -> None:
        super().__init__(size, device)
        self.outputs = nn.ParameterList([self.h.clone(), self.h.clone()])

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, ...]:
        return tuple(self.outputs)


def _function(step: _Step, *, works: bool) -> type[torch.autograd.Function]:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(x, *rest)
            ctx.set_materialize_grads(False)
            if not works:
                return step.h.view_as(step.h), step.h.view_as(step.h)
            outputs = torch.empty_like(step.h), torch.empty_like(step.h)
            step.h.zero_()
            return outputs

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            _ = ctx.saved_tensors
            d_weights, d_bias = step.gradients
            if works:
                d_weights, d_bias = torch.empty_like(d_weights), torch.empty_like(d_bias)
                step.h.zero_()
            return None, d_weights, d_bias, None, None

    return Function


class _Function(_Step):
    def __init__(self, size: Size, device: str, *, works: bool) -> None:
        super().__init__(size, device)
        self.function = _function(self, works=works)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, Tensor]:
        return self.function.apply(x, self.weights, self.bias, *state)


def measure(line: str, device: str, seconds: float, rounds: int) -> Report:
    """The tutorial's spans of steps that compute nothing, and of ours, interleaved."""
    report = new_report(
        "overhead", line, Options(device=device, protocol="tutorial", seconds=seconds)
    )
    modules = {
        "sums": _Sums(SIZE, device),
        "empty": _Function(SIZE, device, works=False),
        "least": _Function(SIZE, device, works=True),
    }
    cells = {name: Cell("lltm", module, module) for name, module in modules.items()}
    cells[OURS] = ours.cell(Request(SIZE, torch.float32, device))
    report.software = machine.describe_software()  # ours has loaded just now
    inputs = make_inputs(SIZE, torch.float32, device, seed=0)
    runs = {name: tutorial(cell, inputs) for name, cell in cells.items()}
    for name, metrics in interleave(runs, seconds=seconds, rounds=rounds).items():
        for metric, samples in metrics.items():
            summary = summarise([sample for one in samples for sample in one])
            medians = [round(median, 4) for median in round_medians(samples)]
            report.results.append(
                Result.of(SIZE, "float32", name, metric, "us", summary, rounds=medians)
            )
    return report
