"""Cell and layer under the transforms of torch.func, compiled and not, against plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from layer_cases import loop
from op_cases import since
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import lltm_conda
from lltm_conda import LLTM, LLTMLayer


@pytest.fixture(autouse=True)
def forget_compiled_code():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def plain(module):
    """The hidden states of a module, in PyTorch's own operations."""

    def of_cell(x: Tensor) -> Tensor:
        zeros = x.new_zeros(x.shape[0], module.state_size)
        return lltm_conda.reference(x, module.weights, module.bias, zeros, zeros)[0]

    def of_layer(x: Tensor) -> Tensor:
        return loop(module, x)[0]

    return of_cell if isinstance(module, LLTM) else of_layer


def first_result(module):
    return lambda x: module(x)[0]


def raw_op(module):
    def of_cell(x: Tensor) -> Tensor:
        zeros = x.new_zeros(x.shape[0], module.state_size)
        return torch.ops.lltm.forward(x, module.weights, module.bias, zeros, zeros)[0]

    def of_layer(x: Tensor) -> Tensor:
        tensors = (x.contiguous(), module.weights_l0, module.bias_l0, None, None)
        return torch.ops.lltm.layer_forward(*tensors, False, True, False)[0]

    return of_cell if isinstance(module, LLTM) else of_layer


def tangent(function):
    return lambda x: jvp(function, (x,), (torch.ones_like(x),))[1]


def pulled_back(function):
    def run(x: Tensor) -> Tensor:
        output, pull_back = vjp(function, x)
        return pull_back(output.detach().cos())[0]

    return run


def loss(function):
    return lambda x: function(x).square().sum()


TRANSFORMS = {
    "jvp": tangent,
    "jacfwd": jacfwd,
    "grad": lambda function: grad(loss(function)),
    "vjp": pulled_back,
    "jacrev": jacrev,
    "hessian": lambda function: hessian(loss(function)),
    "jacrev of jacrev": lambda function: jacrev(jacrev(loss(function))),
    "vmap": vmap,
    "per-sample gradients": lambda function: vmap(grad(loss(function))),
}
every_transform = pytest.mark.parametrize("transform", TRANSFORMS)
every_module = pytest.mark.parametrize("module", [LLTM, LLTMLayer], ids=lambda m: m.__name__)
frozen_or_trained = pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])


def make(module, device, *, trained: bool, lanes: bool) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    instance = module(2, 3, device=device, dtype=torch.float64).requires_grad_(trained)
    shape = (2, 2) if module is LLTM else (2, 2, 2)
    if lanes:
        shape = (4, *shape)
    return instance, torch.randn(shape, device=device, dtype=torch.float64)


def takes_lanes(transform: str) -> bool:
    return transform in ("vmap", "per-sample gradients")


@every_module
@every_transform
@frozen_or_trained
@pytest.mark.parametrize("entry", [first_result, raw_op], ids=lambda e: e.__name__)
@since("2.6", "register_vmap")
def test_transforms(device, module, transform, trained, entry) -> None:
    instance, x = make(module, device, trained=trained, lanes=takes_lanes(transform))
    apply = TRANSFORMS[transform]
    torch.testing.assert_close(
        apply(entry(instance))(x), apply(plain(instance))(x), rtol=1e-10, atol=1e-12
    )


#: The others have the same parts: a new torch may break them, and little else.
COMPILED = {LLTM: ("hessian", "vmap"), LLTMLayer: ("jvp", "grad", "vmap")}
SLOW = (LLTM, "hessian")


def compiled_cases():
    for trained in (True, False):
        for module in (LLTM, LLTMLayer):
            for transform in TRANSFORMS:
                is_rare = not trained or transform not in COMPILED[module]
                name = f"{'trained' if trained else 'frozen'}-{transform}-{module.__name__}"
                marks = [pytest.mark.slow] if (module, transform) == SLOW else []
                marks = [pytest.mark.rehearsal] if is_rare else marks
                yield pytest.param(module, transform, trained, id=name, marks=marks)


@pytest.mark.parametrize(("module", "transform", "trained"), [*compiled_cases()])
@since("2.6", "dynamo's tracing of all transforms")
@pytest.mark.slow
def test_compiled_transforms(device, module, transform, trained) -> None:
    instance, x = make(module, device, trained=trained, lanes=takes_lanes(transform))
    apply = TRANSFORMS[transform]
    compiled = torch.compile(apply(first_result(instance)), backend="aot_eager")
    torch.testing.assert_close(compiled(x), apply(plain(instance))(x), rtol=1e-10, atol=1e-12)


def tangent_by_dual_numbers(function, x: Tensor) -> Tensor | None:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, x.cos()))).tangent


@every_module
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_with_frozen_parameters_passes_tangents_on(device, module, backend) -> None:
    instance, x = make(module, device, trained=False, lanes=False)
    compiled = torch.compile(first_result(instance), backend=backend)
    actual = tangent_by_dual_numbers(compiled, x)
    assert actual is not None
    torch.testing.assert_close(actual, tangent_by_dual_numbers(plain(instance), x))


@every_module
@frozen_or_trained
def test_exported_programs_pass_tangents_on(device, module, trained) -> None:
    instance, x = make(module, device, trained=trained, lanes=False)
    program = torch.export.export(instance, (x,)).module()
    actual = tangent_by_dual_numbers(first_result(program), x)
    assert actual is not None
    torch.testing.assert_close(actual, tangent_by_dual_numbers(plain(instance), x))


@since("2.6", "register_vmap")
@pytest.mark.parametrize("mapped", ["input", "weights", "bias", "h and c", "all"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("stacked", [False, True], ids=["(B, S)", "(1, B, S)"])
def test_vmap_of_the_raw_layer_op(device, mapped, reverse, stacked) -> None:
    state = (1, 2, 5) if stacked else (2, 5)
    shapes = {"input": (3, 2, 4), "weights": (15, 9), "bias": (15,), "h": state, "c": state}
    is_mapped = [mapped == "all" or name in mapped.split(" and ") for name in shapes]
    tensors = [
        torch.randn((6, *shape) if lanes else shape, device=device, dtype=torch.float64)
        for shape, lanes in zip(shapes.values(), is_mapped, strict=True)
    ]

    def op(*tensors: Tensor) -> tuple[Tensor, ...]:
        return torch.ops.lltm.layer_forward(*tensors, reverse, True, False)

    actual = vmap(op, in_dims=tuple(0 if lanes else None for lanes in is_mapped))(*tensors)
    for k in range(6):
        one = [t[k] if lanes else t for t, lanes in zip(tensors, is_mapped, strict=True)]
        for lane, want in zip([result[k] for result in actual], op(*one), strict=True):
            torch.testing.assert_close(lane, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "compiled",
    [
        pytest.param(False, id="eager"),
        pytest.param(True, id="compiled", marks=pytest.mark.slow),
    ],
)
@since("2.6", "dynamo's tracing of all transforms")
def test_checkpointed_layers_under_transforms(device, compiled) -> None:
    layer = LLTMLayer(2, 3, checkpoint=2, device=device, dtype=torch.float64)
    x = torch.randn(5, 2, 2, device=device, dtype=torch.float64)
    call = grad(loss(first_result(layer)))
    slope = (torch.compile(call, backend="aot_eager") if compiled else call)(x)
    torch.testing.assert_close(slope, grad(loss(plain(layer)))(x))
