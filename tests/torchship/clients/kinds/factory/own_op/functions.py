"""Ramps as a function. There is nothing to differentiate."""

import torch
from torch import Tensor, library


def ramp(count: int, step: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A new tensor of `count` numbers: 0, step, 2 step, ..."""
    result: Tensor = torch.ops.own_op.ramp(count, step, dtype=dtype, device=device)
    return result


def _fake(count: int, step: float, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(count, dtype=dtype, device=device)


library.register_fake("own_op::ramp", _fake)
