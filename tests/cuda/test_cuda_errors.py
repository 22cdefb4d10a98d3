"""CUDA's own errors reach the caller with a text, and tensors on mixed devices are refused."""

from __future__ import annotations

import re
import subprocess
import sys

import kernel_table
import pytest
import torch
from op_cases import NAMES, like, make_inputs, saved_for_backward

import lltm_conda
from lltm_conda import loader
from lltm_conda._project import PROJECT

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("most", "one"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_mixed_devices_are_refused_by_name(name, most, one) -> None:
    inputs = make_inputs(device=most)
    bad = inputs._replace(**{name: getattr(inputs, name).to(one)})
    for function in (torch.ops.lltm.forward, lltm_conda.lltm, lltm_conda.LLTMFunction.apply):
        with pytest.raises(RuntimeError) as caught:
            function(*bad)
        message = str(caught.value)
        # Where the kernel for CUDA was chosen, every argument on the CPU is at fault.
        blamed = [n for n in NAMES if getattr(bad, n).device.type == "cpu"]
        assert re.search(rf"\b({'|'.join([name, *blamed])})\b", message), message
        assert "cpu" in message.lower() and "cuda" in message.lower(), message


def test_mixed_devices_are_refused_by_the_backward_op(gpu) -> None:
    inputs = make_inputs(device=gpu)
    results = torch.ops.lltm.forward(*inputs)
    grad_h = like(results)[0].cpu()
    with pytest.raises(RuntimeError, match=r"grad_h.*(CUDA|cuda)"):
        torch.ops.lltm.backward(grad_h, None, None, *saved_for_backward(inputs, results), 31)


def test_a_launch_that_fails_says_which_kernel_and_why(gpu) -> None:
    inputs = make_inputs(4, 3, 5, device=gpu, dtype=torch.float32)
    new_h = torch.ops.lltm.forward(*inputs)[0]
    ffi = kernel_table.interface()
    table = kernel_table.table(PROJECT.folder / "lib" / f"kernels-{loader.load().cuda.name}.so")
    # No pointer is followed: the device is asked for first.
    sizes = {"batch_size": 4, "state_size": 5}
    arguments = ffi.new("lltm_step_forward_arguments*", {"sizes": sizes})
    nowhere = ffi.new("lltm_execution*", {"device_index": torch.cuda.device_count() + 7})
    float32 = ffi.cast("lltm_dtype", 6)
    error = table.pointwise_forward(float32, arguments, nowhere)
    assert error, "a launch on a device that does not exist was reported as a success"
    message = ffi.string(error)
    assert b"pointwise_forward" in message and b"invalid device ordinal" in message
    torch.cuda.synchronize()
    again = torch.ops.lltm.forward(*inputs)
    assert torch.equal(again[0], new_h), "the error was left behind for the next caller"


POISONED = """
import torch, lltm_conda
arguments = [torch.ones(*s, device="cuda") for s in ((3, 4), (15, 9), (15,), (3, 5), (3, 5))]
for _ in range(3):
    lltm_conda.lltm(*arguments)
try:
    torch.zeros(3, device="cuda")[torch.full((3,), 99, device="cuda")]
    torch.cuda.synchronize()
except RuntimeError:
    pass
try:
    lltm_conda.lltm(*arguments)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("raised:", str(error).splitlines()[0])
"""


def test_a_broken_cuda_context_raises(tmp_path) -> None:
    """In a process of its own: nothing can be computed there afterwards."""
    run = subprocess.run(
        [sys.executable, "-c", POISONED],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,  # not the checkout, whose lltm_conda would shadow the installed one
    )
    assert re.search(r"raised: .*(CUDA|cuda|CUBLAS)", run.stdout), run.stdout + run.stderr
