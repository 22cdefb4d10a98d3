"""Kernels run on the caller's stream and device.

A stream is kept busy with a spinning kernel before the inputs get their values on it. Whoever reads
the inputs on that stream sees the values; whoever reads them on another one sees the NaN that were
there before. Each test first shows on a control that it would notice.
"""

from __future__ import annotations

import threading

import pytest
import torch
from op_cases import NAMES, assert_agree, like, make_inputs, through_function

import lltm_conda

pytestmark = pytest.mark.cuda

RESULTS = ("new_h", "new_cell")
SPIN = 200_000_000  # clock cycles: about a tenth of a second


def stale_like(tensors, stream):
    """Tensors full of NaN, complete before anything else runs."""
    stale = [torch.full_like(t, float("nan")) for t in tensors]
    torch.cuda.synchronize()
    for tensor in stale:
        tensor.record_stream(stream)
    return stale


def warm_up(fresh, incoming) -> None:
    """Loads every kernel beforehand: loading one may wait for the kernels that run."""
    leaves = [t.detach().clone().requires_grad_() for t in fresh]
    torch.autograd.grad(through_function(*leaves), leaves, incoming)
    torch.cuda.synchronize()


def fill_late(stale, fresh) -> None:
    """On the current stream: spin, then give the inputs their values."""
    torch.cuda._sleep(SPIN)
    for late, value in zip(stale, fresh, strict=True):
        late.copy_(value)


def test_forward_and_backward_run_on_the_current_stream(gpu) -> None:
    fresh = make_inputs(33, 17, 29, device=gpu)
    want = lltm_conda.reference(*fresh)
    incoming = like(want)
    warm_up(fresh, incoming)
    stream = torch.cuda.Stream()
    stale = stale_like(fresh, stream)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        fill_late(stale, fresh)
        leaves = [t.requires_grad_() for t in stale]
        actual = through_function(*leaves)
        gradients = torch.autograd.grad(actual, leaves, incoming)
        assert not stream.query(), "the stream was idle before the op was queued: spin longer"
    control = through_function(*(t.detach() for t in stale))  # on the default stream: too early
    torch.cuda.synchronize()
    assert all(t.isnan().all() for t in control), "the control read the values: proves nothing"
    assert_agree(actual, want, 1e-12, RESULTS)
    exact = [t.detach().requires_grad_() for t in fresh]
    expected = torch.autograd.grad(lltm_conda.reference(*exact), exact, incoming)
    assert_agree(gradients, expected, 1e-12, NAMES)


@pytest.mark.parametrize("needs", [1, 2, 4, 8, 16, 31])
def test_raw_backward_runs_on_the_current_stream(gpu, needs) -> None:
    inputs = make_inputs(33, 17, 29, device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    fresh = (*like(results), *inputs[:4], results[1], results[2])
    want = torch.ops.lltm.backward(*fresh, needs)
    stream = torch.cuda.Stream()
    stale = stale_like(fresh, stream)
    with torch.cuda.stream(stream):
        fill_late(stale, fresh)
        actual = torch.ops.lltm.backward(*stale, needs)
        assert not stream.query(), "the stream was idle before the op was queued: spin longer"
    torch.cuda.synchronize()
    assert_agree(actual, want, 1e-12, NAMES)


def test_two_streams_at_once(gpu) -> None:
    """Each thread has its stream; neither sees the other's values."""
    failures: list[str] = []
    start = threading.Barrier(2)

    def work(seed: int) -> None:
        try:
            fresh = make_inputs(33, 17, 29, device=gpu, seed=seed)
            want = lltm_conda.reference(*fresh)
            stream = torch.cuda.Stream()
            torch.cuda.synchronize()
            start.wait(60)
            with torch.cuda.stream(stream):
                for _ in range(50):
                    leaves = [t.detach().clone().requires_grad_() for t in fresh]
                    outputs = through_function(*leaves)
                    torch.autograd.grad(outputs, leaves, like(outputs))
                    assert_agree(outputs, want, 1e-12, RESULTS)
        except BaseException as error:
            failures.append(f"seed {seed}: {error!r}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@two_gpus
def test_device_that_is_not_current(gpu) -> None:
    other = torch.device("cuda", 1)
    inputs = make_inputs(33, 17, 29, device=other, requires_grad=True)
    with torch.cuda.device(0):
        outputs = through_function(*inputs)
        gradients = torch.autograd.grad(outputs, inputs, like(outputs))
        assert torch.cuda.current_device() == 0
    assert {t.device for t in (*outputs, *gradients)} == {other}
    exact = [t.detach().cpu().requires_grad_() for t in inputs]
    expected = lltm_conda.reference(*exact)
    assert_agree(outputs, expected, 1e-12, RESULTS)
    assert_agree(gradients, torch.autograd.grad(expected, exact, like(expected)), 1e-12, NAMES)


@two_gpus
def test_two_devices_and_two_streams_at_once() -> None:
    """Device 0 is current; the op runs on device 1's own current stream, behind its late inputs.

    An op without a device guard would launch on device 0, or take device 0's stream, and read NaN
    or fail.
    """
    streams = [torch.cuda.Stream(device=k) for k in range(2)]
    fresh = [make_inputs(33, 17, 29, device=f"cuda:{k}", seed=k) for k in range(2)]
    want = [[t.cpu() for t in lltm_conda.reference(*inputs)] for inputs in fresh]
    incoming = [like(inputs[3:]) for inputs in fresh]  # a copy from the CPU would wait
    stale = []
    for k in range(2):
        with torch.cuda.device(k):
            warm_up(fresh[k], incoming[k])
            stale.append(stale_like(fresh[k], streams[k]))
    actual: list = [None, None]
    with torch.cuda.stream(streams[1]), torch.cuda.stream(streams[0]):
        for k in (1, 0):
            with torch.cuda.device(k):
                assert torch.cuda.current_stream(k) == streams[k]
                fill_late(stale[k], fresh[k])
        with torch.cuda.device(0):
            for k in (1, 0):
                leaves = [t.requires_grad_() for t in stale[k]]
                outputs = through_function(*leaves)
                actual[k] = (outputs, torch.autograd.grad(outputs, leaves, incoming[k]))
        assert not streams[1].query(), "the stream was idle before the op was queued: spin longer"
    for k in range(2):
        torch.cuda.synchronize(k)
        assert_agree(actual[k][0], want[k], 1e-12, RESULTS)
        assert all(g.isfinite().all() for g in actual[k][1])


@two_gpus
@pytest.mark.parametrize("name", NAMES)
def test_arguments_on_two_gpus_are_refused(gpu, name) -> None:
    inputs = make_inputs(device=gpu)
    bad = inputs._replace(**{name: getattr(inputs, name).to("cuda:1")})
    with pytest.raises(RuntimeError, match=rf"({name}|weights).*cuda:[01].*cuda:[01]"):
        torch.ops.lltm.forward(*bad)
