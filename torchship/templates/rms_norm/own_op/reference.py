"""RMSNorm and its gradient in PyTorch's own operations, with which the tests compare."""

import torch
from torch import Tensor


def reference(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """`x * rsqrt(mean(x²) + eps) * weight` over the last dimension, at least in float32."""
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)
    return (values * scale * weight).to(x.dtype)


def gradients(dy: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Those of x and weight, from that of the result."""
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)
    slope = dy * weight.to(values.dtype)
    dx = scale * (slope - values * scale.square() * (slope * values).mean(-1, keepdim=True))
    dweight = (dy * values * scale).reshape(-1, x.shape[-1]).sum(0)
    return dx.to(x.dtype), dweight.to(weight.dtype)
