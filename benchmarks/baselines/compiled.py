"""`torch.compile` of the plain module."""

from __future__ import annotations

import shutil
import sys

import torch

from ..problem import Cell
from . import Request, Unavailable
from .plain import plain_module


def forget() -> None:
    """Drop what was compiled before; without it the recompile limit is met after a few sizes."""
    if "torch._dynamo" in sys.modules:  # importing it takes seconds
        torch._dynamo.reset()


def _compiled(request: Request, mode: str) -> Cell:
    if request.device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise Unavailable("torch.compile needs a C++ compiler on the PATH: install g++")
    module = plain_module(request)
    call = torch.compile(module, mode=mode, fullgraph=True, dynamic=False)
    if mode == "reduce-overhead":
        # Its graphs cannot be captured inside another graph.
        return Cell("lltm", module, call, False, torch.compiler.cudagraph_mark_step_begin)
    return Cell("lltm", module, call)


def compiled_cell(request: Request) -> Cell:
    """The contender `compile`: the default mode."""
    return _compiled(request, "default")


def reduce_overhead_cell(request: Request) -> Cell:
    """The contender `compile-reduce-overhead`: CUDA graphs round the generated kernels."""
    if request.device == "cpu":
        raise Unavailable(
            "reduce-overhead means CUDA graphs; on the CPU it is the default mode: use compile"
        )
    return _compiled(request, "reduce-overhead")
