"""The cell in plain PyTorch calls, also under `torch.compile`."""

import shutil
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..contender import Cell, Request, Unavailable, prepared


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


def plain_cell(request: Request) -> Cell:
    module = prepared(PlainLLTM, request)
    return Cell("lltm", module, module)


def compiled_cell(request: Request) -> Cell:
    if request.device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise Unavailable("torch.compile needs a C++ compiler on the PATH: install g++")
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


def forget_compiled() -> None:
    """Drop earlier compilations, since a few sizes would reach torch's recompile limit."""
    if "torch._dynamo" in sys.modules:  # the import alone takes seconds
        torch._dynamo.reset()
