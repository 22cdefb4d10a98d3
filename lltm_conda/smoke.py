"""A live run of the op, forward and backward, against the plain PyTorch definition, per device."""

from __future__ import annotations

import json
import sys
from typing import Any

#: Relative norm of the difference, by dtype: far above rounding, far below a wrong result.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5}
_BATCH, _INPUT, _STATE = 5, 7, 11


def check_device(device: str) -> dict[str, Any]:
    """Compute one step on `device` in float64 and float32 and compare it.

    Returns:
        `{"device", "ok", "error", "differences"}`; `error` is None or the text of the exception or
        of the comparison that failed, `differences` the relative norms by dtype.
    """
    result: dict[str, Any] = {"device": device, "ok": False, "error": None, "differences": {}}
    try:
        for dtype, tolerance in TOLERANCES.items():
            difference = _difference(device, dtype)
            result["differences"][dtype] = difference
            if not difference <= tolerance:  # a NaN is no yes
                result["error"] = (
                    f"{dtype}: differs from the reference by {difference:.1e}, "
                    f"more than {tolerance:.0e}"
                )
                return result
        result["ok"] = True
    except Exception as error:  # whatever it is, the report names it
        result["error"] = f"{type(error).__name__}: {error}"
    return result


def _difference(device: str, dtype: str) -> float:
    """The largest relative norm of a difference among the outputs and the five gradients."""
    import torch

    from .functions import lltm
    from .reference import reference

    generator = torch.Generator().manual_seed(7)
    shapes = (
        (_BATCH, _INPUT),
        (3 * _STATE, _STATE + _INPUT),
        (3 * _STATE,),
        (_BATCH, _STATE),
        (_BATCH, _STATE),
    )
    values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]

    def run(function: Any, device: str, kind: torch.dtype) -> list[torch.Tensor]:
        inputs = [value.to(device, kind).requires_grad_() for value in values]
        new_h, new_cell = function(*inputs)
        (new_h.sum() + (2 * new_cell).sum()).backward()
        return [new_h.detach(), new_cell.detach(), *(i.grad for i in inputs if i.grad is not None)]

    ours = run(lltm, device, getattr(torch, dtype))
    exact = run(reference, "cpu", torch.float64)
    if len(ours) != len(exact):
        return float("nan")
    return max(
        float((a.cpu().double() - b).norm() / b.norm()) for a, b in zip(ours, exact, strict=True)
    )


def run() -> dict[str, Any]:
    """Load the binaries and check every device that torch sees.

    Returns:
        `{"variant", "error", "devices"}`; `error` is the text of a failed import, else None.
    """
    from . import loader

    try:
        loaded = loader.load()
        import torch
    except ImportError as error:
        return {"variant": None, "error": str(error), "devices": []}
    devices = ["cpu"]
    if torch.version.cuda is not None and torch.cuda.is_available():
        devices += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return {
        "variant": loaded.variant,
        "error": None,
        "devices": [_guarded(loader, device) for device in devices],
    }


def _guarded(loader: Any, device: str) -> dict[str, Any]:
    if device.startswith("cuda"):
        try:
            loader.check_cuda(int(device.partition(":")[2]))
        except loader.LLTMCudaError as error:
            finding = error.finding
            text = f"{finding.why}; to mend: {finding.fix}"
            return {"device": device, "ok": False, "error": text, "differences": {}}
    return check_device(device)


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
