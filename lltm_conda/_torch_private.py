"""The private parts of torch that the op's Python uses: all of them, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "apply_in_c",
    "below_autograd",
    "forward_mode_is_active",
    "functorch_is_active",
    "implementations",
    "is_forward_over_reverse",
    "is_zero_tensor",
]

# Whether torch.func or torch.vmap runs. An autograd Function without `setup_context` raises there,
# so `lltm` must ask first. Nothing public tells.
functorch_is_active = torch._C._are_functorch_transforms_active


def apply_in_c(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without its Python part, for calls while functorch is not active.

    That part unwraps dead functorch tensors, which the dispatcher does as well. It takes 2 µs.
    """
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]


def below_autograd(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """``op`` without its Python part and its registered autograd; dynamo cannot trace it.

    Inside an autograd Function that autograd records nothing, but it takes as long as a tiny step.
    """
    call, guard = op._op, torch._C._AutoDispatchBelowAutograd

    def run(*arguments: Any) -> Any:
        with guard():
            return call(*arguments)

    return run


_libraries = ExitStack()


def implementations(namespace: str) -> torch.library.Library:
    """A ``torch.library.Library`` of kind "IMPL", kept for as long as the process runs.

    ``Library(...)`` hands the name of its caller's file to C++, which refuses a path that is not
    UTF-8. Here the caller is torch itself.
    """
    library: torch.library.Library = _libraries.enter_context(
        torch.library._scoped_library(namespace, "IMPL")
    )
    return library


def is_forward_over_reverse() -> bool:
    """Whether functorch runs forward mode over reverse mode, as ``torch.func.hessian`` does.

    The stack of transforms is the only thing that tells this from forward mode alone, which the
    op refuses.
    """
    functorch: Any = torch._C._functorch
    transforms = [level.key() for level in functorch.get_interpreter_stack() or ()]
    kinds = functorch.TransformType
    return kinds.Jvp in transforms and kinds.Grad in transforms[transforms.index(kinds.Jvp) :]


def forward_mode_is_active() -> bool:
    """Whether a ``torch.autograd.forward_ad.dual_level`` is open; tangents need no grad mode."""
    forward_ad: Any = torch.autograd.forward_ad
    return forward_ad._current_level >= 0  # type: ignore[no-any-return]


def is_zero_tensor(tensor: Tensor) -> bool:
    """Whether a tensor is a ZeroTensor: zeros without memory, which autograd makes."""
    return tensor._is_zerotensor()
