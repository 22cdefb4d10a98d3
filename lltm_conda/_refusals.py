"""Why torch would not run the op on these tensors, in one sentence."""

from __future__ import annotations

import torch
from torch import Tensor

_NAMES = ("input", "weights", "bias", "old_h", "old_cell")
_ADVICE = "lltm_conda.reference computes the cell in plain PyTorch"


def refusal(tensors: tuple[Tensor, ...], names: tuple[str, ...] = _NAMES) -> str | None:
    """Names the first argument that has no kernel, and says what to do; None if all have one."""
    for name, tensor in zip(names, tensors, strict=True):
        if not isinstance(tensor, Tensor):
            return (
                f"lltm: {name} must be a torch.Tensor, got {type(tensor).__name__}; "
                f"convert it with torch.as_tensor({name})"
            )
        if tensor.layout is not torch.strided:
            return (
                f"lltm: {name} must be a dense (strided) tensor, got layout {tensor.layout}; "
                f"convert it with {name}.to_dense()"
            )
        if tensor.is_quantized:
            return (
                f"lltm: {name} must be float32, float64, float16 or bfloat16, got the quantised "
                f"dtype {tensor.dtype}; convert it with {name}.dequantize()"
            )
        if tensor.device.type not in ("cpu", "cuda", "meta"):
            return (
                f"lltm: {name} must be a CPU or CUDA tensor, got one on {tensor.device}; there are "
                f"no kernels for that device. {_ADVICE}"
            )
    return None
