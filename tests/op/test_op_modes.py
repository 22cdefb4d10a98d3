"""Modes of PyTorch that surround an op: autocast, checkpointing, determinism, threads, hooks."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
import torch
from op_cases import (
    NAMES,
    TOLERANCE,
    assert_agree,
    every_entry,
    gradients,
    in_float64,
    like,
    make_inputs,
    saved_for_backward,
    through_apply,
    through_function,
    through_module,
)
from torch.utils.checkpoint import checkpoint

import lltm_conda

RESULTS = ("new_h", "new_cell")

# Autocast is the Python functions': torch.library.register_autocast knows one dtype per device,
# and would turn float16 into bfloat16 or the other way about.
casting = pytest.mark.parametrize(
    "entry", [through_function, through_apply, through_module], ids=lambda e: e.__name__
)
low_precision = pytest.mark.parametrize(
    "low", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"]
)


@casting
@low_precision
def test_autocast_computes_in_the_low_precision(device, entry, low) -> None:
    inputs = make_inputs(33, 17, 29, dtype=torch.float32, device=device)
    want = entry(*(t.to(low) for t in inputs))
    with torch.autocast(device.type, low):
        actual = entry(*inputs)
    for g, w in zip(actual, want, strict=True):
        assert g.dtype == low and torch.equal(g, w)


@casting
@low_precision
def test_autocast_gradients_keep_the_dtype_of_their_inputs(device, entry, low) -> None:
    inputs = make_inputs(33, 17, 29, dtype=torch.float32, device=device, requires_grad=True)
    exact = in_float64(inputs)
    with torch.autocast(device.type, low):
        outputs = entry(*inputs)
    incoming = like(outputs)
    actual = torch.autograd.grad(outputs, inputs, incoming)
    want = torch.autograd.grad(lltm_conda.reference(*exact), exact, in_float64(incoming))
    assert {g.dtype for g in actual} == {torch.float32}
    assert_agree(actual, want, 2 * TOLERANCE[low], NAMES)


@casting
def test_autocast_brings_mixed_dtypes_together(device, entry) -> None:
    # What a cell sees in a model under autocast: low-precision activations, float32 parameters.
    inputs = make_inputs(dtype=torch.float32, device=device)
    mixed = inputs._replace(input=inputs.input.bfloat16(), old_cell=inputs.old_cell.bfloat16())
    with torch.autocast(device.type, torch.bfloat16):
        actual = entry(*mixed)
    for g, w in zip(actual, entry(*(t.bfloat16() for t in inputs)), strict=True):
        assert torch.equal(g, w)


@casting
def test_disabled_autocast_changes_nothing(device, entry) -> None:
    inputs = make_inputs(dtype=torch.float32, device=device)
    with torch.autocast(device.type, torch.bfloat16), torch.autocast(device.type, enabled=False):
        actual = entry(*inputs)
    for g, w in zip(actual, entry(*inputs), strict=True):
        assert g.dtype == torch.float32 and torch.equal(g, w)


@casting
def test_backward_inside_autocast(device, entry) -> None:
    inputs = make_inputs(33, 17, 29, dtype=torch.float32, device=device, requires_grad=True)
    exact = in_float64(inputs)
    with torch.autocast(device.type, torch.bfloat16):
        outputs = entry(*inputs)
        incoming = like(outputs)
        actual = torch.autograd.grad(outputs, inputs, incoming)
    want = torch.autograd.grad(lltm_conda.reference(*exact), exact, in_float64(incoming))
    assert_agree(actual, want, 2 * TOLERANCE[torch.bfloat16], NAMES)


@every_entry
@pytest.mark.parametrize("use_reentrant", [False, True], ids=["", "reentrant"])
def test_activation_checkpointing(device, entry, use_reentrant) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    outputs = entry(*inputs)
    incoming = like(outputs)
    want = torch.autograd.grad(outputs, inputs, incoming)
    outputs = checkpoint(entry, *inputs, use_reentrant=use_reentrant)
    torch.autograd.backward(outputs, incoming)
    assert all(torch.equal(t.grad, w) for t, w in zip(inputs, want, strict=True))


@every_entry
def test_saved_tensors_pass_through_hooks(device, entry) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor.cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(device)):
        outputs = entry(*inputs)
    assert packed, "nothing was saved through the hooks"
    incoming = like(outputs)
    actual = torch.autograd.grad(outputs, inputs, incoming)
    again = entry(*inputs)
    want = torch.autograd.grad(again, inputs, incoming)
    assert_agree(actual, want, 1e-12, NAMES)


@every_entry
def test_nothing_is_kept_alive_without_grad(device, entry) -> None:
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        entry(*make_inputs(device=device))
    assert not packed


@every_entry
def test_anomaly_mode(device, entry) -> None:
    inputs = make_inputs(device=device, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        outputs = entry(*inputs)
        torch.autograd.backward(outputs, like(outputs))
    assert all(t.grad.isfinite().all() for t in inputs)


@contextmanager
def deterministic_algorithms():
    torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=False)


@every_entry
def test_deterministic_algorithms(device, entry, monkeypatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    inputs = make_inputs(257, 17, 29, dtype=torch.float32, device=device, requires_grad=True)
    runs = []
    with deterministic_algorithms():
        for _ in range(2):
            outputs = entry(*inputs)
            runs.append((*outputs, *torch.autograd.grad(outputs, inputs, like(outputs))))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_step(inputs):
    """Everything that the raw ops return, forward and backward."""
    results = torch.ops.lltm.forward(*inputs)
    arguments = (*like(results), *saved_for_backward(inputs, results))
    return (*results, *torch.ops.lltm.backward(*arguments, 31))


STEP = ("new_h", "new_cell", "gates", *(f"gradient of {name}" for name in NAMES))


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("shape", [(1025, 3, 65), (65, 2, 521), (20001, 1, 3), (2, 3, 5)], ids=str)
def test_thread_count_does_not_change_the_result(count, shape) -> None:
    inputs = make_inputs(*shape)
    with threads(1):
        want = one_step(inputs)
    with threads(count):
        actual = one_step(inputs)
    assert_agree(actual, want, 1e-12, STEP)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_thread_count_does_not_change_a_bit_of_the_pointwise_part(count) -> None:
    # Weights of zero take the GEMM out: its sums may be split differently.
    inputs = make_inputs(513, 1, 257)
    inputs.weights.zero_()
    with threads(1):
        want = one_step(inputs)
    with threads(count):
        actual = one_step(inputs)
    pointwise = ("new_h", "new_cell", "gates", "gradient of old_cell")
    for name in pointwise:
        assert torch.equal(actual[STEP.index(name)], want[STEP.index(name)]), name


def test_concurrent_callers_do_not_disturb_each_other(device) -> None:
    callers, repeats = 4, 30
    cases = [
        make_inputs(17 + k, 5, 33, seed=k, device=device, requires_grad=True)
        for k in range(callers)
    ]

    def work(inputs):
        outputs = lltm_conda.lltm(*inputs)
        return (*outputs, *gradients(outputs, inputs, like(outputs)))

    expected = [work(inputs) for inputs in cases]
    start = threading.Barrier(callers)
    failures: list[str] = []

    def run(k: int) -> None:
        try:
            start.wait(60)
            for _ in range(repeats):
                assert_agree(work(cases[k]), expected[k], 1e-13, (*RESULTS, *NAMES))
        except BaseException as error:
            failures.append(f"thread {k}: {error!r}")

    workers = [threading.Thread(target=run, args=(k,)) for k in range(callers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert not failures and not any(worker.is_alive() for worker in workers), failures


def test_one_graph_can_be_differentiated_from_two_threads(device) -> None:
    inputs = make_inputs(33, 5, 17, device=device, requires_grad=True)
    outputs = lltm_conda.lltm(*inputs)
    incoming = like(outputs)
    want = torch.autograd.grad(outputs, inputs, incoming, retain_graph=True)
    slopes: dict[int, tuple[torch.Tensor, ...]] = {}

    def run(k: int) -> None:
        for _ in range(20):
            slopes[k] = torch.autograd.grad(outputs, inputs, incoming, retain_graph=True)

    workers = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert sorted(slopes) == [0, 1]
    for actual in slopes.values():
        assert_agree(actual, want, 1e-13, NAMES)


@every_entry
def test_default_dtype_does_not_matter(device, entry) -> None:
    inputs = make_inputs(dtype=torch.float32, device=device)
    want = entry(*inputs)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        actual = entry(*inputs)
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(g, w) for g, w in zip(actual, want, strict=True))


@every_entry
def test_parameters_and_subclasses_of_tensor_are_taken(device, entry) -> None:
    inputs = make_inputs(device=device)
    wrapped = inputs._replace(
        weights=torch.nn.Parameter(inputs.weights), bias=torch.nn.Parameter(inputs.bias)
    )
    for actual, want in zip(entry(*wrapped), entry(*inputs), strict=True):
        assert torch.equal(actual, want)


def test_the_op_is_visible_to_dispatch_modes(device) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    dispatched = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            dispatched.append(str(function))
            return function(*args, **(kwargs or {}))

    with Recorder():
        lltm_conda.lltm(*make_inputs(device=device))
    assert "lltm.forward.default" in dispatched, dispatched
