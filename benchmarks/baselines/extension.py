"""The tutorial-style extensions, built just in time out of `csrc/` beside this file.

`cpp` is one ATen call after another; `cuda` adds one kernel a direction. The autograd function
round them is the one such extensions have: the outputs that backward wants are saved, and gradients
come back for all five inputs whether wanted or not.
"""

from __future__ import annotations

import fcntl
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..problem import Cell, randomise
from . import Request, Unavailable
from .plain import PlainLLTM

CSRC = Path(__file__).parent / "csrc"
BUILD = Path(__file__).parents[2] / "build" / "benchmarks"


@functools.cache
def load_cpp() -> ModuleType:
    """Build and import the op-by-op extension (20 to 30 s the first time)."""
    return _load("lltm_baseline_cpp", [CSRC / "cell.cpp"])


@functools.cache
def load_cuda() -> ModuleType:
    """Build and import the kernels (about a minute the first time)."""
    if not torch.cuda.is_available():
        raise Unavailable(
            "the CUDA baseline needs a GPU and a CUDA build of torch; torch.cuda.is_available() is "
            f"False with torch {torch.__version__}: run this on a machine that has both"
        )
    sources = [CSRC / "cell_cuda.cpp", CSRC / "cell_cuda_kernel.cu"]
    return _load("lltm_baseline_cuda", sources, with_cuda=True)


def _load(name: str, sources: list[Path], **options: Any) -> ModuleType:
    from torch.utils import cpp_extension

    tag = f"torch{torch.__version__}-cp{sys.version_info.major}{sys.version_info.minor}"
    directory = BUILD / tag / name
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with _only_builder(directory), _ninja_on_path():
            return cpp_extension.load(
                name,
                [str(source) for source in sources],
                build_directory=str(directory),
                extra_cflags=["-O3"],
                extra_cuda_cflags=["-O3"] if options.get("with_cuda") else None,
                **options,
            )
    except (OSError, RuntimeError, ImportError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise Unavailable(
            f"could not build {name}: {reason[0]} (build folder {directory.name}; "
            "it needs ninja and a compiler that fits this torch)"
        ) from error


@contextmanager
def _only_builder(directory: Path) -> Iterator[None]:
    """Hold the folder, and clear the lock file that a build killed halfway has left there.

    torch's own lock is a file that such a build never deletes, and the next one waits for ever.
    """
    with (directory / "builder.flock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        (directory / "lock").unlink(missing_ok=True)
        yield


@contextmanager
def _ninja_on_path() -> Iterator[None]:
    """pip puts ninja beside the interpreter, which need not be on the PATH."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join((before, str(Path(sys.executable).parent)))
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _autograd_function(extension: ModuleType) -> type[torch.autograd.Function]:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
        ) -> tuple[Tensor, Tensor]:
            outputs = extension.forward(input, weights, bias, old_h, old_cell)
            new_h, new_cell = outputs[:2]
            ctx.save_for_backward(*outputs[1:], weights)
            return new_h, new_cell

        @staticmethod
        def backward(ctx: Any, grad_h: Tensor, grad_cell: Tensor) -> tuple[Tensor, ...]:
            d_old_h, d_input, d_weights, d_bias, d_old_cell = extension.backward(
                grad_h.contiguous(), grad_cell.contiguous(), *ctx.saved_tensors
            )
            return d_input, d_weights, d_bias, d_old_h, d_old_cell

    return Function


class ExtensionLLTM(PlainLLTM):
    """The module round such an extension; `bias` is (1, 3S) there, as `d_bias` is."""

    def __init__(self, extension: ModuleType, input_features: int, state_size: int) -> None:
        super().__init__(input_features, state_size)
        self.bias = torch.nn.Parameter(torch.empty(1, 3 * state_size))
        self.function = _autograd_function(extension)

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return self.function.apply(input, self.weights, self.bias, *state)


def _cell(extension: ModuleType, request: Request, *, capturable: bool) -> Cell:
    module = ExtensionLLTM(extension, request.size.inputs, request.size.state)
    module.to(device=request.device, dtype=request.dtype)
    randomise(module, request.size.state, request.seed)
    # The textbook mask gives elu the slope 0 where exp(z) rounds to 1: in 16 bits often, in float32
    # at one of some million elements, whose gradient is then missing.
    slack = {2: 4.0, 4: 8.0}.get(request.dtype.itemsize, 1.0)
    return Cell("lltm", module, module, capturable, slack=slack)


def cpp_cell(request: Request) -> Cell:
    """The contender `cpp`, on either device."""
    return _cell(load_cpp(), request, capturable=True)


def cuda_cell(request: Request) -> Cell:
    """The contender `cuda`. It launches on the legacy default stream, so no graph can hold it."""
    if request.device != "cuda":
        raise Unavailable("the CUDA baseline runs on CUDA tensors only: use --device cuda")
    if request.dtype not in (torch.float32, torch.float64):
        raise Unavailable(
            f"such kernels dispatch over float32 and float64 only, not {request.dtype}"
        )
    return _cell(load_cuda(), request, capturable=False)
