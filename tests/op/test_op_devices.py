"""What is said of tensors on a device that cannot be served, and on several devices."""

from __future__ import annotations

import pytest
import torch
from op_cases import make_inputs
from torch._subclasses.fake_tensor import FakeTensorMode

import lltm_conda
from lltm_conda import functions


def on_devices(rest: str, **devices: str) -> list[torch.Tensor]:
    """The step's arguments without data, which need no GPU to be on one."""
    inputs = make_inputs(2, 3, 5)
    with FakeTensorMode():
        return [
            torch.empty(tensor.shape, dtype=tensor.dtype, device=devices.get(name, rest))
            for name, tensor in inputs._asdict().items()
        ]


def test_what_is_wrong_with_a_device_is_all_that_is_said(monkeypatch) -> None:
    def fault(*_):
        raise RuntimeError("lltm: this binary has no code for the device")

    def kernels(*_):
        raise AssertionError("the kernels were asked as well")

    monkeypatch.setattr(functions, "check_cuda", fault)
    monkeypatch.setattr(functions, "_eager_forward", kernels)
    with pytest.raises(RuntimeError, match="has no code for the device"):
        lltm_conda.lltm(*on_devices("cuda"))


@pytest.mark.parametrize("name", ["weights", "bias", "old_h", "old_cell"])
def test_the_argument_on_another_device_is_named(name) -> None:
    with pytest.raises(RuntimeError, match=f"lltm: {name} must be on the device of input"):
        lltm_conda.lltm(*on_devices("cpu", **{name: "cuda"}))


def test_fake_cuda_tensors_are_not_checked_where_there_is_no_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with FakeTensorMode():
        shapes = ((4, 3), (15, 8), (15,), (4, 5), (4, 5))
        tensors = [torch.empty(shape, device="cuda") for shape in shapes]
        new_h, _ = lltm_conda.lltm(*tensors)
    assert (new_h.shape, new_h.device.type) == ((4, 5), "cuda")
