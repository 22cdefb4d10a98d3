"""Ramps in PyTorch's own operations."""

import torch
from torch import Tensor


def reference(count: int, step: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return (torch.arange(count, dtype=torch.float64, device=device) * step).to(dtype)
