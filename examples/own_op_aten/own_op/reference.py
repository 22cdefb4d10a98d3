"""The affine map in PyTorch's own operations; the tests compare the operator with it."""

from collections.abc import Callable

import torch
from torch import Tensor


def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`x weightᵀ + bias` for x (N, D), weight (M, D) and bias (M,)."""
    return x @ weight.t() + bias


def parts() -> tuple[Callable[..., Tensor], Callable[..., Tensor], list[Tensor]]:
    """For `python -m own_op`: the op, its definition, and what both are called with."""
    from .functions import affine

    values = torch.linspace(-2, 3, 5 * 8, dtype=torch.float64)
    return affine, reference, [values.reshape(5, 8), values[:24].reshape(3, 8), values[:3]]
