"""All private parts of torch that the op's Python uses."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function

# Whether torch.func or torch.vmap runs. If so, an autograd Function without `setup_context`
# raises an error, so `lltm` must ask first. Torch has no public function for this question.
functorch_is_active = torch._C._are_functorch_transforms_active


def apply_in_c(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without its Python part, for calls while functorch is not active.

    The Python part takes 2 µs to unwrap dead functorch tensors, which the dispatcher unwraps,
    too.
    """
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]


#: The Function that torch itself uses to differentiate one level of transforms.
OneLevelFunction = torch.autograd.function._SingleLevelFunction


def apply_at_one_level(function: type[OneLevelFunction]) -> Callable[..., Any]:
    """``function.apply`` for a kernel of the Autograd key.

    Under ``torch.func``, the dispatcher calls this kernel once for each level of transforms,
    and what `function` calls below autograd reaches the next level. So `function`
    differentiates one level, and needs no ``setup_context``. It must be a `OneLevelFunction`:
    from torch 2.15 on, ``apply`` of other Functions asks for ``setup_context`` in C++.
    """
    apply: Callable[..., Any] = function.apply  # type: ignore[attr-defined]

    def run(*arguments: object) -> object:
        with enable_single_level_autograd_function():
            return apply(*arguments)

    return run


@contextmanager
def lower_levels_record() -> Iterator[None]:
    """Lets levels of ``torch.func`` below this one differentiate what an autograd Function runs.

    ``apply`` switches grad mode and forward mode off for its ``forward``, at every level.
    """
    if not functorch_is_active():
        yield
        return
    with torch.enable_grad(), torch.autograd.forward_ad._set_fwd_grad_enabled(mode=True):
        yield


def below_autograd(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """``op`` without the autograd rules of `register`, and without its Python part for dynamo.

    Inside an autograd Function these rules record nothing, but take as long as a tiny step.
    Dynamo cannot trace the result.
    """
    call = op._op
    context = torch._C._AutoDispatchBelowAutograd

    def run(*arguments: object) -> object:
        with context():
            return call(*arguments)

    return run


# Whether autocast is on for any device. `torch.is_autocast_enabled` tells this of one device
# only, and takes a thousand instructions to parse the device's name.
autocast_is_active = torch._C._is_any_autocast_enabled

# Whether ``torch.jit.trace`` runs.
jit_is_tracing = torch._C._is_tracing

# Whether ``torch.export`` runs. Torch has a public function for this question from 2.7 on.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


def is_exporting_to_onnx() -> bool:
    """Whether ``torch.onnx.export(..., dynamo=True)`` runs, which has no rules for other ops."""
    return is_exporting() and torch.onnx.is_in_onnx_export()


_libraries = ExitStack()


def implementations(namespace: str) -> torch.library.Library:
    """A ``torch.library.Library`` of kind "IMPL", which lives as long as the process.

    ``Library(...)`` passes the name of its caller's file to C++, which refuses a path that is
    not UTF-8. ``_scoped_library`` makes torch itself the caller.
    """
    library = torch.library._scoped_library(namespace, "IMPL")
    return _libraries.enter_context(library)  # type: ignore[no-any-return]


_forward_ad: Any = torch.autograd.forward_ad


def forward_mode_is_active() -> bool:
    """Whether forward mode runs: ``torch.func.jvp``, or an open ``forward_ad.dual_level``."""
    return _forward_ad._current_level >= 0  # type: ignore[no-any-return]


def has_tangent(arguments: Iterable[Any]) -> bool:
    """Whether forward mode follows one of these arguments.

    ``forward_ad.unpack_dual`` asks a level that compiled code does not set, so ask torch itself.
    """
    unpack_dual: Any = torch._VF._unpack_dual
    return any(
        isinstance(argument, Tensor)
        and argument.is_floating_point()
        and unpack_dual(argument, level=0)[1] is not None
        for argument in arguments
    )


def is_zero_tensor(tensor: Tensor) -> bool:
    """Whether a tensor is a ZeroTensor: zeros without memory, which autograd creates."""
    return tensor._is_zerotensor()


def tag_as_pt2_compliant(op: torch._ops.OpOverload) -> None:
    """Tells compilers that an op passes ``torch.library.opcheck``, as ``custom_op`` does.

    C++ gives tags where it declares an op, which LibTorch's stable ABI cannot.
    """
    tag = torch.Tag.pt2_compliant_tag
    if tag not in op.tags:
        op._tags = [*op.tags, tag]


def when_a_mode_asks(op: torch._ops.OpOverload, tell: Callable[[object], None]) -> None:
    """Calls `tell` with each dispatch mode that asks whether `op` decomposes, before the answer.

    ``FlopCounterMode`` asks that of every op, and then looks for the op's formula.
    """
    decompose = op.decompose

    def asked(*arguments: object, **named: object) -> object:
        tell(torch.utils._python_dispatch._get_current_dispatch_mode())
        return decompose(*arguments, **named)

    op.decompose = asked  # type: ignore[method-assign]


def forward_hooks_of_all_modules() -> list[Callable[..., Any]]:
    """What ``register_module_forward_pre_hook`` and ``register_module_forward_hook`` have added."""
    modules: Any = torch.nn.modules.module
    return [*modules._global_forward_pre_hooks.values(), *modules._global_forward_hooks.values()]


def device_of(tensor: Tensor) -> torch.device:
    """The device of a tensor; for a fake tensor, the device of the tensor that it stands for.

    In an op's Meta implementation, the attribute ``device`` of a fake tensor is meta.
    """
    return getattr(tensor, "fake_device", tensor.device)
