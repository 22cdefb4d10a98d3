"""Counts in PyTorch's own operations."""

import torch
from torch import Tensor


def reference(values: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    equal = values.flatten().long()[:, None] == torch.arange(bins)
    places = torch.where(equal.any(0), equal.int().argmax(0), -1)
    return equal.sum(0).to(values.dtype), places
