"""The op as a function of Python."""

import torch
from torch import Tensor

from .loader import LOADER


def scale(values: Tensor, factor: float) -> Tensor:
    """`values * factor`."""
    if values.is_cuda:
        LOADER.check_cuda(values.device)
    scaled: Tensor = torch.ops.tiny.scale(values, factor)
    return scaled
