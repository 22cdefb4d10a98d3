"""Each way to call the cell and the layer, under each of torch's transforms, against eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from lltm_conda import LLTM, LLTMLayer

FEATURES, STATE, BATCH, STEPS = 3, 4, 2, 5


class Call(NamedTuple):
    """A module, the shapes of the tensors of a call, and the call, which returns tensors."""

    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    run: Callable[..., tuple[Tensor, ...]]


def cell() -> LLTM:
    return LLTM(FEATURES, STATE)


def layer(**options) -> Callable[[], LLTMLayer]:
    return lambda: LLTMLayer(FEATURES, STATE, **options)


def flat(results) -> tuple[Tensor, ...]:
    output, (h, c) = results
    return output, h, c


def flat_packed(results) -> tuple[Tensor, ...]:
    output, (h, c) = results
    return output.data, h, c


STEP = ((BATCH, FEATURES), (BATCH, STATE), (BATCH, STATE))
ROW = ((FEATURES,), (STATE,), (STATE,))
LAYER = ((STEPS, BATCH, FEATURES), (1, BATCH, STATE), (1, BATCH, STATE))
DEEP = ((BATCH, STEPS, FEATURES), (4, BATCH, STATE), (4, BATCH, STATE))
SEQUENCE = ((STEPS, FEATURES), (1, STATE), (1, STATE))
SORTED = pack_sequence([torch.zeros(n, FEATURES) for n in (5, 3, 2)])
SHUFFLED = pack_sequence([torch.zeros(n, FEATURES) for n in (2, 5, 3)], enforce_sorted=False)
PACKED = (tuple(SORTED.data.shape), (1, 3, STATE), (1, 3, STATE))


def packed(model: PackedSequence, data: Tensor) -> PackedSequence:
    return PackedSequence(data, *model[1:])


torch.manual_seed(0)
INPUT, INPUTS = torch.randn(STEP[0]), torch.randn(LAYER[0])

CALLS = {
    "cell": Call(cell, STEP[:1], lambda m, x: m(x)),
    "cell-state": Call(cell, STEP, lambda m, x, h, c: m(x, (h, c))),
    "cell-None": Call(cell, STEP[:1], lambda m, x: m(x, None)),
    "cell-list": Call(cell, STEP, lambda m, x, h, c: m(x, [h, c])),
    "cell-hx=": Call(cell, STEP, lambda m, x, h, c: m(x, hx=(h, c))),
    "cell-state=": Call(cell, STEP, lambda m, x, h, c: m(input=x, state=(h, c))),
    "cell-twice": Call(cell, STEP, lambda m, x, h, c: m(x, hx=m(x, (h, c)))),
    "cell-constant": Call(cell, STEP[1:], lambda m, h, c: m(INPUT, (h, c))),
    "cell-row": Call(cell, ROW, lambda m, x, h, c: m(x, hx=(h, c))),
    "cell-row-constant": Call(cell, ROW[1:], lambda m, h, c: m(INPUT[0], hx=(h, c))),
    "layer": Call(layer(), LAYER[:1], lambda m, x: flat(m(x))),
    "layer-hx": Call(layer(), LAYER, lambda m, x, h, c: flat(m(x, (h, c)))),
    "layer-None": Call(layer(), LAYER[:1], lambda m, x: flat(m(input=x, hx=None))),
    "layer-list": Call(layer(), LAYER, lambda m, x, h, c: flat(m(x, [h, c]))),
    "layer-hx=": Call(layer(), LAYER, lambda m, x, h, c: flat(m(input=x, hx=(h, c)))),
    "layer-state=": Call(layer(), LAYER, lambda m, x, h, c: flat(m(x, state=(h, c)))),
    "layer-constant": Call(layer(), LAYER[1:], lambda m, h, c: flat(m(INPUTS, (h, c)))),
    "layer-sequence": Call(layer(), SEQUENCE, lambda m, x, h, c: flat(m(x, hx=(h, c)))),
    "layer-deep": Call(
        layer(num_layers=2, bidirectional=True, batch_first=True),
        DEEP,
        lambda m, x, h, c: flat(m(x, hx=(h, c))),
    ),
    "layer-checkpoint": Call(layer(checkpoint=2), LAYER, lambda m, x, h, c: flat(m(x, hx=(h, c)))),
    "packed": Call(layer(), PACKED[:1], lambda m, x: flat_packed(m(packed(SORTED, x)))),
    "packed-state": Call(
        layer(), PACKED, lambda m, x, h, c: flat_packed(m(packed(SORTED, x), (h, c)))
    ),
    "packed-deep": Call(
        layer(num_layers=2, bidirectional=True, batch_first=True),
        (PACKED[0], (4, 3, STATE), (4, 3, STATE)),
        lambda m, x, h, c: flat_packed(m(packed(SHUFFLED, x), hx=(h, c))),
    ),
    "packed-hx=": Call(
        layer(), PACKED, lambda m, x, h, c: flat_packed(m(packed(SORTED, x), hx=(h, c)))
    ),
    "packed-shuffled": Call(
        layer(bias=False),
        PACKED,
        lambda m, x, h, c: flat_packed(m(packed(SHUFFLED, x), state=(h, c))),
    ),
    "packed-result": Call(layer(), PACKED[:1], lambda m, x: m(packed(SHUFFLED, x))[0]),
}


def model_of(call: Call) -> nn.Module:
    """A module that calls the cell or layer, with a plain signature, which tracers need."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = call.make()

    class OfOne(Model):
        def forward(self, a):
            return call.run(self.part, a)

    class OfTwo(Model):
        def forward(self, a, b):
            return call.run(self.part, a, b)

    class OfThree(Model):
        def forward(self, a, b, c):
            return call.run(self.part, a, b, c)

    torch.manual_seed(1)
    return (OfOne, OfTwo, OfThree)[len(call.shapes) - 1]()


def compiled(dynamic: bool):
    return lambda model, tensors: torch.compile(model, backend="eager", dynamic=dynamic)(*tensors)


def exported(model, tensors):
    return torch.export.export(model, tensors).module()(*tensors)


def recorded(model, tensors):
    from torch.fx.experimental.proxy_tensor import make_fx  # its import takes a second

    return make_fx(lambda *tensors: model(*tensors))(*tensors)(*tensors)


def called_with_parameters(model, tensors):
    parameters = {name: tensor.clone() for name, tensor in model.named_parameters()}
    return torch.func.functional_call(model, parameters, tensors)


class Same(nn.Module):
    def forward(self, tensor):
        return tensor.clone()


def parametrised(model, tensors):
    for name in [name for name, _ in model.part.named_parameters()]:
        parametrize.register_parametrization(model.part, name, Same())
    return model(*tensors)


def hooked(model, tensors):
    model.part.register_forward_pre_hook(lambda m, args, kwargs: (args, kwargs), with_kwargs=True)
    model.part.register_forward_hook(lambda m, args, kwargs, result: result, with_kwargs=True)
    return model(*tensors)


def derived(model, tensors):
    base = type(model.part)

    class Own(base):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    model.part.__class__ = Own
    return model(*tensors)


class OwnTensor(Tensor):
    """A subclass that changes nothing."""


def of_subclass(model, tensors):
    results = model(*(tensor.as_subclass(OwnTensor) for tensor in tensors))
    sum(result.sum() for result in results if result.is_floating_point()).backward()
    return results


TRANSFORMS = {
    "compile": compiled(dynamic=False),
    "compile-dynamic": compiled(dynamic=True),
    "fx": lambda model, tensors: torch.fx.symbolic_trace(model)(*tensors),
    "jit.trace": lambda model, tensors: torch.jit.trace(model, tensors)(*tensors),
    "export": exported,
    "make_fx": recorded,
    "functional_call": called_with_parameters,
    "parametrize": parametrised,
    "hooks": hooked,
    "subclass": derived,
    "tensor-subclass": of_subclass,
}


@pytest.fixture(autouse=True)
def forget_compiled_code():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


#: To compile a packed sequence takes seconds, so others are under `rehearsal`, for a new torch.
COMPILED_OF_PACKED = {"compile": ("packed", "packed-deep"), "compile-dynamic": ("packed-state",)}
#: Of a dynamic compilation, which takes more than a static one, the others are under `slow`.
QUICK_AND_DYNAMIC = ("cell-state", "layer-hx")


def cases():
    """Each transform of each call."""
    for transform in TRANSFORMS:
        for name in CALLS:
            is_quick = name in COMPILED_OF_PACKED.get(transform, CALLS)
            is_rare = name.startswith("packed") and not is_quick
            is_slow = transform == "compile-dynamic" and name not in QUICK_AND_DYNAMIC
            is_slow |= (transform, name) == ("compile", "packed-deep")
            marks = [pytest.mark.slow] if is_slow else []
            marks = [pytest.mark.rehearsal] if is_rare else marks
            yield pytest.param(transform, name, id=f"{transform}-{name}", marks=marks)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(("transform", "name"), [*cases()])
def test_computes_what_eager_mode_computes(transform, name) -> None:
    call = CALLS[name]
    if name.startswith("packed") and transform == "export":
        pytest.skip("torch exports no PackedSequence")
    if name == "packed-result" and transform == "jit.trace":
        pytest.skip("torch.jit.trace knows no PackedSequence")
    model = model_of(call)
    tensors = tuple(torch.randn(shape) for shape in call.shapes)
    want = [tensor for tensor in model(*tensors) if tensor is not None]
    results = TRANSFORMS[transform](model, tensors)
    actual = [tensor for tensor in results if tensor is not None]
    assert len(actual) == len(want)
    for result, expected in zip(actual, want, strict=True):
        torch.testing.assert_close(result.as_subclass(Tensor), expected)


def leaf_tracer(kind: type[nn.Module]) -> torch.fx.Tracer:
    class LeafTracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, kind) or super().is_leaf_module(module, name)

    return LeafTracer()


def doubled_by_forward(model) -> None:
    base = type(model.part)

    class Doubling(base):
        def forward(self, input, *args, **kwargs):
            return super().forward(2 * input, *args, **kwargs)

    model.part.__class__ = Doubling


def doubled_by_the_forward_of_an_instance(model) -> None:
    forward = model.part.forward
    model.part.forward = lambda input, *args, **kwargs: forward(2 * input, *args, **kwargs)


def doubled_by_a_hook(model) -> None:
    model.part.register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:]))


def doubled_by_a_hook_of_all_modules(model) -> None:
    kinds = (LLTM, LLTMLayer)
    nn.modules.module.register_module_forward_pre_hook(
        lambda module, args: (2 * args[0], *args[1:]) if isinstance(module, kinds) else args
    )


@pytest.fixture
def without_global_hooks():
    yield
    nn.modules.module._global_forward_pre_hooks.clear()


@pytest.mark.usefixtures("without_global_hooks")
@pytest.mark.parametrize("name", ["cell-state", "layer-hx"])
@pytest.mark.parametrize(
    "double",
    [
        doubled_by_forward,
        doubled_by_the_forward_of_an_instance,
        doubled_by_a_hook,
        doubled_by_a_hook_of_all_modules,
    ],
)
def test_fx_refuses_a_call_that_it_would_record_twice(name, double) -> None:
    call = CALLS[name]
    model = model_of(call)
    double(model)
    tensors = tuple(torch.randn(shape) for shape in call.shapes)
    with pytest.raises(torch.fx.proxy.TraceError, match="is_leaf_module"):
        torch.fx.symbolic_trace(model)
    graph = leaf_tracer(type(model.part)).trace(model)
    traced = torch.fx.GraphModule(model, graph)
    for result, expected in zip(traced(*tensors), model(*tensors), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", ["cell-state", "layer-hx"])
def test_fx_records_a_pruned_module(name) -> None:
    call = CALLS[name]
    model = model_of(call)
    weights = next(key for key, _ in model.part.named_parameters() if key.startswith("weights"))
    prune.random_unstructured(model.part, weights, amount=0.5)
    tensors = tuple(torch.randn(shape) for shape in call.shapes)
    want = model(*tensors)
    for result, expected in zip(torch.fx.symbolic_trace(model)(*tensors), want, strict=True):
        torch.testing.assert_close(result, expected)


def test_jit_trace_warns_of_a_packed_layer_no_more_than_of_an_lstm(recwarn) -> None:
    def warned(make) -> int:
        call = Call(make, PACKED[:1], CALLS["packed"].run)
        recwarn.clear()
        torch.jit.trace(model_of(call), (torch.randn(PACKED[0]),))
        return sum(issubclass(w.category, torch.jit.TracerWarning) for w in recwarn.list)

    assert warned(layer()) <= warned(lambda: nn.LSTM(FEATURES, STATE))


def test_a_checkpointed_layer_compiles_once_for_many_lengths() -> None:
    module = LLTMLayer(FEATURES, STATE, checkpoint=2)
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph

    run = torch.compile(module, backend=backend, fullgraph=True)
    for steps in range(3, 33):
        x = torch.randn(steps, BATCH, FEATURES)
        torch.testing.assert_close(run(x)[0], module(x)[0])
    assert len(graphs) <= 2


@pytest.mark.parametrize("train", [True, False], ids=["training", "evaluation"])
def test_a_checkpointed_layer_exports_for_any_length(train) -> None:
    module = LLTMLayer(FEATURES, STATE, checkpoint=2).train(train)
    shapes = {"input": {0: torch.export.Dim("steps", min=2, max=64)}}
    program = torch.export.export(module, (INPUTS,), dynamic_shapes=shapes).module()
    longer = torch.randn(11, BATCH, FEATURES)
    torch.testing.assert_close(program(longer)[0], module(longer)[0])


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("options", [{}, {"checkpoint": 2}, {"bidirectional": True}], ids=str)
def test_a_traced_layer_runs_any_length(options) -> None:
    module = LLTMLayer(FEATURES, STATE, **options)
    traced = torch.jit.trace(module, (INPUTS,))
    longer = torch.randn(11, BATCH + 1, FEATURES)
    torch.testing.assert_close(traced(longer)[0], module(longer)[0])
