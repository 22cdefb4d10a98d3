"""Compares a project's op with its definition, forward and backward, on CPU and CUDA devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .loader import BinariesCudaError, Loader

if TYPE_CHECKING:
    import torch

#: The largest accepted relative differences: far above rounding errors, far below a wrong op's.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5}

#: The op, its definition in plain PyTorch, and float64 arguments for both, on the CPU.
Parts = tuple[Callable[..., Any], Callable[..., Any], "Sequence[torch.Tensor]"]


def live_run(loader: Loader, parts: Callable[[], Parts]) -> dict[str, Any]:
    """Loads the binaries, and checks the op of `parts()` on the CPU and on every CUDA device.

    docs/fails/compat.md ("smoke") lists the fields of the result.
    """
    try:
        loaded = loader.load()
        import torch
    except ImportError as error:
        return {"variant": None, "error": str(error), "devices": []}
    devices = ["cpu"]
    if torch.version.cuda is not None and torch.cuda.is_available():
        devices += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    checked = [_check_device(device, loader, parts) for device in devices]
    return {"variant": loaded.variant, "error": None, "devices": checked}


def _check_device(device: str, loader: Loader, parts: Callable[[], Parts]) -> dict[str, Any]:
    """Compares the op on `device` with its definition, in float64 and float32."""
    error, found = None, dict[str, float]()
    try:
        if device != "cpu":
            loader.check_cuda(int(device.partition(":")[2]))
        for dtype, most in TOLERANCES.items():
            found[dtype] = worst = difference(parts(), device, dtype)
            if not worst <= most:  # also true for a NaN
                error = f"{dtype}: differs from the reference by {worst:.1e}, more than {most:.0e}"
                break
    except BinariesCudaError as failure:
        error = f"{failure.finding.why}; to mend: {failure.finding.fix}"
    except Exception as failure:  # the report must name every failure
        error = f"{type(failure).__name__}: {failure}"
    return {"device": device, "ok": error is None, "error": error, "differences": found}


def difference(parts: Parts, device: str, dtype: str) -> float:
    """The largest relative difference (in the 2-norm) between the tensors of op and definition.

    The tensors are the outputs and all gradients. The result is NaN if one side has more tensors.
    """
    import torch

    op, definition, samples = parts
    rounded = [sample.to(getattr(torch, dtype)) for sample in samples]

    def run(function: Any, device: str, kind: torch.dtype) -> list[torch.Tensor]:
        inputs = [value.to(device, kind, copy=True).requires_grad_() for value in rounded]
        made = function(*inputs)
        outputs = [made] if isinstance(made, torch.Tensor) else list(made)
        # The weights differ, so that swapped outputs or elements give wrong gradients.
        weights = [torch.linspace(k + 1, k + 2, x.numel()) for k, x in enumerate(outputs)]
        total = sum((o.flatten() * w.to(o)).sum() for o, w in zip(outputs, weights, strict=True))
        total.backward()  # type: ignore[union-attr]
        return [*(x.detach() for x in outputs), *(i.grad for i in inputs if i.grad is not None)]

    ours = run(op, device, getattr(torch, dtype))
    exact = run(definition, "cpu", torch.float64)
    if len(ours) != len(exact):
        return float("nan")
    # If the exact tensor is zero, as for an empty batch, the difference is absolute.
    return max(
        float((a.cpu().double() - b).norm() / (b.norm() if b.any() else 1))
        for a, b in zip(ours, exact, strict=True)
    )
