"""Compares a project's op with its definition, forward and backward, on the CPU and on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

from .loader import BinariesCudaError, Loader

if TYPE_CHECKING:
    import torch

#: The largest accepted relative differences: far above rounding errors, far below a wrong
#: op's.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5}

#: An op or its definition: tensors in, a tensor or several out.
Function = Callable[..., "torch.Tensor | Sequence[torch.Tensor]"]
#: The op, its definition in plain PyTorch, and float64 arguments for both, on the CPU.
Parts = tuple[Function, Function, "Sequence[torch.Tensor]"]


class DeviceResult(TypedDict):
    """The comparison on one device."""

    device: str
    ok: bool
    error: str | None  #: None if `ok`
    differences: dict[str, float]  #: the largest relative difference for each dtype


class LiveResult(TypedDict):
    """The result of a live run; docs/fails/compat.md ("smoke") describes the fields."""

    variant: str | None
    error: str | None
    devices: list[DeviceResult]


def live_run(loader: Loader, parts: Callable[[], Parts]) -> LiveResult:
    """Loads the binaries, and checks the op of `parts()` on the CPU and on every CUDA device."""
    try:
        loaded = loader.load()
        import torch
    except ImportError as error:
        return {"variant": None, "error": str(error), "devices": []}
    devices = ["cpu"]
    if torch.version.cuda is not None and torch.cuda.is_available():
        devices += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    results = [_check_device(device, loader, parts) for device in devices]
    return {"variant": loaded.variant, "error": None, "devices": results}


def _check_device(device: str, loader: Loader, parts: Callable[[], Parts]) -> DeviceResult:
    """Compares the op on `device` with its definition, in float64 and float32."""
    error = None
    differences: dict[str, float] = {}
    try:
        if device != "cpu":
            loader.check_cuda(int(device.partition(":")[2]))
        for dtype, tolerance in TOLERANCES.items():
            worst = difference(parts(), device, dtype)
            differences[dtype] = worst
            if not worst <= tolerance:  # also true for a NaN
                error = (
                    f"{dtype}: differs from the reference by {worst:.1e}, more than {tolerance:.0e}"
                )
                break
    except BinariesCudaError as failure:
        error = f"{failure.finding.why}; to fix: {failure.finding.fix}"
    except Exception as failure:  # the report must name every failure
        error = f"{type(failure).__name__}: {failure}"
    return {"device": device, "ok": error is None, "error": error, "differences": differences}


def difference(parts: Parts, device: str, dtype: str) -> float:
    """The largest relative difference (in the 2-norm) between the tensors of op and definition.

    The tensors are the outputs and all gradients. NaN if one side has more tensors.
    """
    import torch

    op, definition, samples = parts
    rounded = [sample.to(getattr(torch, dtype)) for sample in samples]

    def run(function: Function, device: str, kind: torch.dtype) -> list[torch.Tensor]:
        inputs = [value.to(device, kind, copy=True).requires_grad_() for value in rounded]
        result = function(*inputs)
        outputs = [result] if isinstance(result, torch.Tensor) else list(result)
        total = torch.zeros((), dtype=kind, device=device)
        for number, output in enumerate(outputs):
            # The weights differ, so that swapped outputs or elements give wrong gradients.
            weights = torch.linspace(number + 1, number + 2, output.numel()).to(output)
            total = total + (output.flatten() * weights).sum()
        total.backward()
        gradients = [value.grad for value in inputs if value.grad is not None]
        return [*(output.detach() for output in outputs), *gradients]

    ours = run(op, device, getattr(torch, dtype))
    exact = run(definition, "cpu", torch.float64)
    if len(ours) != len(exact):
        return float("nan")
    # If the exact tensor is zero, as for an empty batch, the difference is absolute.
    return max(
        float((a.cpu().double() - b).norm() / (b.norm() if b.any() else 1))
        for a, b in zip(ours, exact, strict=True)
    )
