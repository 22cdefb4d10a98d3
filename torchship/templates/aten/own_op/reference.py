"""The affine map in PyTorch's own operations; the tests compare the operator with it."""

from torch import Tensor


def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`x weightᵀ + bias` for x (N, D), weight (M, D) and bias (M,)."""
    return x @ weight.t() + bias
