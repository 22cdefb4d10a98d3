"""The tutorial-style extensions `cpp` and `cuda`, compiled just in time from `csrc/`."""

import fcntl
import functools
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ..contender import Cell, Request, Unavailable, prepared
from .cells import PlainLLTM

CSRC = Path(__file__).parent / "csrc"
BUILD = Path(__file__).parents[2] / "build" / "benchmarks"


@functools.cache
def load(name: str, source: str) -> ModuleType:
    """Build and import an extension. The first build takes half a minute, or a minute for CUDA."""
    from torch.utils import cpp_extension

    tag = f"torch{torch.__version__}-cp{sys.version_info.major}{sys.version_info.minor}"
    directory = BUILD / tag / name
    directory.mkdir(parents=True, exist_ok=True)
    # pip installs ninja into the interpreter's folder, which need not be on the PATH.
    folders = (os.environ.get("PATH", ""), str(Path(sys.executable).parent))
    os.environ["PATH"] = os.pathsep.join(folders)
    try:
        # A killed build leaves torch's lock file, and the next build would wait for it
        # forever. Our own lock, which ends with the process, makes it safe to remove torch's
        # file.
        with (directory / "builder.flock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (directory / "lock").unlink(missing_ok=True)
            built: ModuleType = cpp_extension.load(
                name,
                [str(CSRC / source)],
                build_directory=str(directory),
                extra_cflags=["-O3"],
                extra_cuda_cflags=["-O3"],
            )
            return built
    except (OSError, RuntimeError, ImportError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise Unavailable(
            f"could not build {name}: {reason[0]} (build folder {directory.name}; "
            "a build needs ninja and a compiler that fits this torch)"
        ) from error


class BackwardCtx(Protocol):
    """What torch hands to the backward pass."""

    saved_tensors: tuple[Tensor, ...]


def autograd_function(extension: ModuleType) -> type[torch.autograd.Function]:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: FunctionCtx, *arguments: Tensor) -> tuple[Tensor, Tensor]:
            input, weights, bias, old_h, old_cell = arguments
            outputs = extension.forward(input, weights, bias, old_h, old_cell)
            new_h, new_cell = outputs[:2]
            ctx.save_for_backward(*outputs[1:], weights)
            return new_h, new_cell

        @staticmethod
        def backward(ctx: BackwardCtx, grad_h: Tensor, grad_cell: Tensor) -> tuple[Tensor, ...]:
            d_old_h, d_input, d_weights, d_bias, d_old_cell = extension.backward(
                grad_h.contiguous(), grad_cell.contiguous(), *ctx.saved_tensors
            )
            return d_input, d_weights, d_bias, d_old_h, d_old_cell

    return Function


class ExtensionLLTM(PlainLLTM):
    """The module of a tutorial-style extension; `bias` is (1, 3S), like `d_bias` of backward."""

    def __init__(self, extension: ModuleType, input_features: int, state_size: int) -> None:
        super().__init__(input_features, state_size)
        self.bias = torch.nn.Parameter(torch.empty(1, 3 * state_size))
        self.function = autograd_function(extension)

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        outputs = self.function.apply(input, self.weights, self.bias, *state)
        return cast("tuple[Tensor, Tensor]", outputs)


def _cell(extension: ModuleType, request: Request, *, capturable: bool) -> Cell:
    module = prepared(functools.partial(ExtensionLLTM, extension), request)
    # These extensions give elu the slope 0, not 1, if z is negative and exp(z) rounds to 1.
    # That happens often in 16 bits, and for about one z in a million in float32; `slack`
    # allows for it.
    slack = {2: 4.0, 4: 8.0}.get(request.dtype.itemsize, 1.0)
    return Cell("lltm", module, module, capturable=capturable, slack=slack)


def cpp_cell(request: Request) -> Cell:
    return _cell(load("lltm_baseline_cpp", "cell.cpp"), request, capturable=True)


def cuda_cell(request: Request) -> Cell:
    """The contender `cuda`. It launches on the legacy default stream, which no graph captures."""
    if request.device != "cuda":
        raise Unavailable("the CUDA baseline runs on CUDA tensors only: use --device cuda")
    if request.dtype not in (torch.float32, torch.float64):
        raise Unavailable(f"the CUDA baseline takes float32 and float64, not {request.dtype}")
    extension = load("lltm_baseline_cuda", "cell_cuda_kernel.cu")
    return _cell(extension, request, capturable=False)
