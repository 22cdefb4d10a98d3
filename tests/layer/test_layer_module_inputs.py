"""PyTorch's own inputs for nn.LSTM and nn.LSTMCell, and the checks that its module tests make.

``torch.testing._internal.common_modules`` has the inputs and the references of inputs without a
batch. The checks are those of PyTorch's test/test_modules.py, written for our two modules.
"""

from __future__ import annotations

import copy
import io
import pickle
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import pytest
import torch
from op_cases import like
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from lltm_conda import LLTM, LLTMLayer

if TYPE_CHECKING:
    from torch.testing._internal import common_modules


@cache
def of_torch() -> ModuleType:
    """`common_modules`; its import takes seconds, which a run without these tests need not wait."""
    # It would freeze torch's flags for the whole process, and other tests set them.
    with mock.patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal import common_modules
    return common_modules


class Sample(NamedTuple):
    """A module, how to make it, and arguments of a call."""

    make: type[nn.Module]
    constructor: common_modules.FunctionInput
    call: common_modules.FunctionInput
    reference: object

    def module(self, **options) -> nn.Module:
        torch.manual_seed(0)
        return self.make(*self.constructor.args, **self.constructor.kwargs, **options)


def samples(make: type[nn.Module], dtype: torch.dtype, requires_grad: bool) -> list[Sample]:
    generate = {
        LLTM: of_torch().module_inputs_torch_nn_LSTMCell,
        LLTMLayer: of_torch().module_inputs_torch_nn_LSTM,
    }[make]
    inputs = generate(None, device="cpu", dtype=dtype, requires_grad=requires_grad, training=True)
    return [
        Sample(make, sample.constructor_input, sample.forward_input, sample.reference_fn)
        for sample in inputs
        if not sample.constructor_input.kwargs.get("proj_size")
    ]


def packed_samples(dtype: torch.dtype, requires_grad: bool) -> list[Sample]:
    """Those of GRU, whose state is one tensor, with two."""
    inputs = of_torch().module_inputs_torch_nn_RNN_GRU(
        None,
        device="cpu",
        dtype=dtype,
        requires_grad=requires_grad,
        training=True,
        with_packed_sequence=True,
        is_rnn=False,
    )
    packed = []
    for sample in inputs:
        args = sample.forward_input.args
        if isinstance(args[0], PackedSequence):
            state = () if len(args) == 1 else ((args[1], args[1].clone()),)
            call = of_torch().FunctionInput(args[0], *state)
            packed.append(Sample(LLTMLayer, sample.constructor_input, call, None))
    return packed


def every_sample(dtype=torch.float64, requires_grad=False) -> list[Sample]:
    options = (dtype, requires_grad)
    return [*samples(LLTM, *options), *samples(LLTMLayer, *options), *packed_samples(*options)]


def run(module: nn.Module, call: common_modules.FunctionInput) -> list[Tensor]:
    results = tree_leaves(module(*call.args, **call.kwargs))
    return [result for result in results if isinstance(result, Tensor)]


def test_the_inputs_are_there() -> None:
    kinds = [sample.make for sample in every_sample()]
    assert kinds.count(LLTM) >= 2 and kinds.count(LLTMLayer) >= 16
    assert packed_samples(torch.float64, False)


@pytest.mark.parametrize("make", [LLTM, LLTMLayer], ids=lambda make: make.__name__)
def test_inputs_without_a_batch_agree_with_pytorchs_reference(make) -> None:
    for sample in samples(make, torch.float64, False):
        module = sample.module(dtype=torch.float64)
        args, kwargs = sample.call.args, sample.call.kwargs
        want = sample.reference(module, *args, **kwargs)
        torch.testing.assert_close(module(*args, **kwargs), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_factory_arguments_reach_parameters_and_results(dtype) -> None:
    for sample in every_sample(dtype):
        module = sample.module(dtype=dtype, device="cpu")
        assert {parameter.dtype for parameter in module.parameters()} == {dtype}
        assert all(r.dtype in (dtype, torch.int64) for r in run(module, sample.call))
        assert all(p.is_meta for p in sample.module(device="meta").parameters())
        assert repr(module).startswith(f"{type(module).__name__}(")
        assert str(sample.make(*sample.constructor.args, **sample.constructor.kwargs))


def saved(module: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), saved],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_duplicates_compute_the_same(duplicate) -> None:
    for sample in every_sample():
        module = sample.module(dtype=torch.float64)
        want = run(module, sample.call)
        torch.testing.assert_close(run(duplicate(module), sample.call), want, rtol=0, atol=0)


def test_training_and_evaluation_do_not_differ() -> None:
    for sample in every_sample():
        module = sample.module(dtype=torch.float64)
        want = run(module.train(), sample.call)
        torch.testing.assert_close(run(module.eval(), sample.call), want, rtol=0, atol=0)


def test_moves_to_empty_memory_and_back() -> None:
    for sample in every_sample():
        module = sample.module(dtype=torch.float64)
        want = run(module, sample.call)
        state = module.state_dict()
        empty = sample.module(dtype=torch.float64, device="meta").to_empty(device="cpu")
        empty.load_state_dict(state)
        torch.testing.assert_close(run(empty, sample.call), want, rtol=0, atol=0)


def not_contiguous(value):
    """The same values with a gap between elements."""
    if not isinstance(value, Tensor) or value.dim() == 0 or not value.is_floating_point():
        return value
    spread = torch.repeat_interleave(value.detach(), 2, dim=-1)[..., ::2]
    return spread.requires_grad_(value.requires_grad)


def gradients(results: list[Tensor], module: nn.Module) -> tuple[Tensor | None, ...]:
    results = [result for result in results if result.requires_grad]
    return torch.autograd.grad(results, [*module.parameters()], like(results), allow_unused=True)


def test_inputs_and_parameters_that_are_not_contiguous() -> None:
    for sample in every_sample():
        module = sample.module(dtype=torch.float64)
        want = run(module, sample.call)
        slopes = gradients(want, module)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.set_(not_contiguous(parameter))
        args = tree_map(not_contiguous, sample.call.args)
        actual = run(module, of_torch().FunctionInput(*args, **sample.call.kwargs))
        torch.testing.assert_close(actual, want)
        torch.testing.assert_close(gradients(actual, module), slopes)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck], ids=lambda check: check.__name__)
def test_derivatives_of_parameters(check) -> None:
    for sample in samples(LLTM, torch.float64, False) + samples(LLTMLayer, torch.float64, False):
        module = sample.module(dtype=torch.float64)
        names = [name for name, _ in module.named_parameters()]

        def call(*parameters: Tensor, module=module, names=names, sample=sample):
            values = dict(zip(names, parameters, strict=True))
            arguments = (sample.call.args, sample.call.kwargs)
            return tuple(tree_leaves(torch.func.functional_call(module, values, *arguments)))

        assert check(call, tuple(module.parameters()), fast_mode=True)


ERRORS = {
    LLTM: "module_error_inputs_torch_nn_LSTMCell",
    LLTMLayer: "module_error_inputs_torch_nn_RNN_GRU",
}


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: make.__name__)
def test_what_pytorchs_modules_refuse_is_refused(make) -> None:
    options = {"device": "cpu", "dtype": torch.float32, "requires_grad": False, "training": True}
    inputs = getattr(of_torch(), ERRORS[make])(None, **options)
    assert inputs
    for error in inputs:
        constructor = error.module_error_input.constructor_input
        if constructor.args[0] == 0:
            continue  # our modules take inputs without features
        if error.error_on == of_torch().ModuleErrorEnum.CONSTRUCTION_ERROR:
            with pytest.raises(error.error_type):
                make(*constructor.args, **constructor.kwargs)
            continue
        call = error.module_error_input.forward_input
        with pytest.raises(error.error_type, match="lltm: "):
            make(*constructor.args, **constructor.kwargs)(*call.args, **call.kwargs)


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: make.__name__)
def test_a_complex_module_is_refused_when_it_is_made(make) -> None:
    with pytest.raises(ValueError, match=r"got torch\.complex64"):
        make(3, 4, dtype=torch.complex64)


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: make.__name__)
def test_integers_are_not_told_to_convert_the_module(make) -> None:
    with pytest.raises((RuntimeError, ValueError), match=r"input\.to") as refusal:
        make(3, 4)(torch.ones(5, 2, 3, dtype=torch.int64)[: 1 if make is LLTM else 5].squeeze(0))
    assert "module.to" not in str(refusal.value)


def test_a_number_is_no_input_of_a_cell() -> None:
    with pytest.raises(ValueError, match="input must have shape"):
        LLTM(3, 4)(torch.tensor(1.0))
