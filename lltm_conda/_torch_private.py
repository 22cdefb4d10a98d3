"""All private parts of torch that the op's Python uses."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

# Whether torch.func or torch.vmap runs. If so, an autograd Function without `setup_context` raises
# an error, so `lltm` must ask first. Torch has no public function for this question.
functorch_is_active = torch._C._are_functorch_transforms_active


def apply_in_c(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without its Python part, for calls while functorch is not active.

    The Python part takes 2 µs to unwrap dead functorch tensors, which the dispatcher unwraps, too.
    """
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]


def below_autograd(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """``op`` without the autograd rules of `register`, and without its Python part for dynamo.

    Inside an autograd Function these rules record nothing, but take as long as a tiny step. Dynamo
    cannot trace the result.
    """
    call, context = op._op, torch._C._AutoDispatchBelowAutograd

    def run(*arguments: Any) -> Any:
        with context():
            return call(*arguments)

    return run


# Whether autocast is on for any device. `torch.is_autocast_enabled` tells this of one device only,
# and takes a thousand instructions to parse the device's name.
autocast_is_active = torch._C._is_any_autocast_enabled

_libraries = ExitStack()


def implementations(namespace: str) -> torch.library.Library:
    """A ``torch.library.Library`` of kind "IMPL", which lives as long as the process.

    ``Library(...)`` passes the name of its caller's file to C++, which refuses a path that is not
    UTF-8. ``_scoped_library`` makes torch itself the caller.
    """
    library = torch.library._scoped_library(namespace, "IMPL")
    return _libraries.enter_context(library)  # type: ignore[no-any-return]


def is_forward_over_reverse() -> bool:
    """Whether functorch runs forward mode over reverse mode, as ``torch.func.hessian`` does.

    The op refuses plain forward mode; only the stack of transforms tells the two apart.
    """
    functorch: Any = torch._C._functorch
    transforms = [level.key() for level in functorch.get_interpreter_stack() or ()]
    kinds = functorch.TransformType
    return kinds.Jvp in transforms and kinds.Grad in transforms[transforms.index(kinds.Jvp) :]


def forward_mode_is_active() -> bool:
    """Whether a ``torch.autograd.forward_ad.dual_level`` is open, even without grad mode."""
    forward_ad: Any = torch.autograd.forward_ad
    return forward_ad._current_level >= 0  # type: ignore[no-any-return]


def is_zero_tensor(tensor: Tensor) -> bool:
    """Whether a tensor is a ZeroTensor: zeros without memory, which autograd creates."""
    return tensor._is_zerotensor()


def device_of(tensor: Tensor) -> torch.device:
    """The device of a tensor; for a fake tensor, the device of the tensor that it stands for.

    In an op's Meta implementation, the attribute ``device`` of a fake tensor is meta.
    """
    return getattr(tensor, "fake_device", tensor.device)
