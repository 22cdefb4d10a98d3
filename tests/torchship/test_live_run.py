"""The live run computes on the devices and in the dtypes that an op takes, and no others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from torchship.judge.project import NOBODY, Project
from torchship.runtime import live_run
from torchship.runtime.live_process import (
    has_passed,
    has_run_nowhere,
    live_run_text,
    run_in_process,
)
from torchship.runtime.live_run import DeviceResult, Parts, difference, served_devices

PROJECT = NOBODY._replace(distribution="live-op", namespace="live_run_test", operator="double")


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    library = torch.library.Library("live_run_test", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.define("steps(int count) -> Tensor")
    yield library
    library._destroy()


def run(parts: Parts, *dtypes: str, gradients: bool = True) -> DeviceResult:
    """The result on the CPU, without binaries."""
    loader = SimpleNamespace(project=PROJECT, load=lambda: SimpleNamespace(variant="none-cpu"))
    result = live_run.live_run(loader, lambda: parts, dtypes, gradients=gradients)
    (device,) = result["devices"]
    assert (device["device"], device["ok"]) == ("cpu", device["error"] is None)
    return device


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


@pytest.fixture
def on_cpu(library: torch.library.Library) -> None:
    library.impl("double", doubled, "CPU")


@pytest.mark.parametrize(
    ("keys", "devices"),
    [(("CPU",), ["cpu"]), (("CUDA",), ["cuda"]), (("CPU", "CUDA"), ["cpu", "cuda"])],
)
def test_the_devices_are_those_of_the_registration(library, keys, devices) -> None:
    for key in keys:
        library.impl("double", doubled, key)
    assert served_devices(PROJECT) == devices


@pytest.mark.parametrize(
    ("kernels", "devices"),
    [((), ["cpu", "cuda"]), (("cpu",), ["cpu"]), (("cuda",), ["cuda"])],
)
def test_an_operator_without_tensors_serves_the_devices_of_its_kernels(
    library, kernels, devices
) -> None:
    library.impl("steps", torch.arange, "CompositeExplicitAutograd")
    project: Project = PROJECT._replace(operator="steps", kernels=kernels)
    assert served_devices(project) == devices


def test_an_operator_of_overloads_alone_serves_the_devices_of_its_kernels(library) -> None:
    library.define("scaled.float(Tensor x, float factor) -> Tensor")
    project: Project = PROJECT._replace(operator="scaled", kernels=("cpu",))
    assert served_devices(project) == ["cpu"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_an_op_for_cuda_alone_computes_nothing_where_no_gpu_is(library) -> None:
    library.impl("double", doubled, "CUDA")
    loader = SimpleNamespace(project=PROJECT, load=lambda: SimpleNamespace(variant="stable210"))
    result = live_run.live_run(loader, lambda: pytest.fail("the CPU was tried"))
    assert result == {"variant": "stable210", "error": None, "devices": []}
    assert has_run_nowhere(result) and has_passed(result)
    assert "nothing was computed" in live_run_text(result)


@pytest.mark.parametrize(
    "dtypes",
    [
        ("int32", "int64", "uint8"),
        ("bool",),
        ("complex64", "complex128"),
        ("float8_e4m3fn", "float8_e5m2"),
        ("float16",),
    ],
)
def test_only_the_dtypes_of_the_op_are_tried(on_cpu, dtypes) -> None:
    tried = []

    def op(x: torch.Tensor) -> torch.Tensor:
        tried.append(str(x.dtype).removeprefix("torch."))
        return x.clone()

    device = run((op, torch.clone, [torch.linspace(-2, 3, 5).double()]), *dtypes)
    assert device["error"] is None
    assert tuple(tried) == tuple(device["differences"]) == dtypes


def test_integers_must_be_equal(on_cpu) -> None:
    parts = (lambda x: x + 1, lambda x: x + (x > 90), [torch.arange(100.0)])
    assert str(run(parts, "int32")["error"]).startswith("int32: differs from the reference by")


def test_indices_stay_integers_beside_values_of_each_dtype(on_cpu) -> None:
    seen = []

    def op(values: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(index.dtype)
        return values[index], index

    samples = [torch.linspace(0, 1, 4), torch.tensor([3, 1])]
    assert run((op, op, samples), "float64", "bfloat16")["ok"]
    assert set(seen) == {torch.int64}


def test_what_is_no_tensor_is_handed_on_and_device_and_dtype_are_those_under_test(on_cpu) -> None:
    calls = []

    def op(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        calls.append((count, dtype, device))
        return torch.arange(count, dtype=dtype, device=device)

    samples = [7, torch.float64, torch.device("meta")]
    assert run((op, op, samples), "float32")["ok"]
    cpu = torch.device("cpu")
    assert calls == [(7, torch.float32, cpu), (7, torch.float64, cpu)]


def test_results_may_be_numbers(on_cpu) -> None:
    assert run((lambda n: [n, 2 * n], lambda n: [n, 2 * n], [4]), "float32")["ok"]
    assert not run((lambda n: [n, 2 * n], lambda n: [n, 3 * n], [4]), "float32")["ok"]


def test_an_op_without_gradients_is_asked_for_none(on_cpu) -> None:
    parts = (lambda x: x.detach() * 2, lambda x: x * 2, [torch.ones(3)])
    assert run(parts, "float32", gradients=False)["ok"]
    assert "GRADIENTS = False" in str(run(parts, "float32")["error"])


def test_a_wrong_gradient_is_seen(on_cpu) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3

    parts = (Wrong.apply, lambda x: x * 2, [torch.ones(3)])
    assert difference(parts, "cpu", "float64") == pytest.approx(0.5)
    assert difference(parts, "cpu", "float64", gradients=False) == 0


def test_a_result_of_another_shape_is_a_difference(on_cpu) -> None:
    parts = (lambda x: x[:1], lambda x: x, [torch.ones(3)])
    assert math.isnan(difference(parts, "cpu", "float32", gradients=False))


def test_an_unknown_dtype_is_named(on_cpu) -> None:
    error = run((doubled, doubled, [torch.ones(3)]), "float31")["error"]
    assert "DTYPES in smoke.py names 'float31', which is not a dtype of torch" in str(error)


SMOKE = """\
from . import {name}

def run():
    return {{"variant": {name}(), "error": None, "devices": []}}
"""


@pytest.mark.parametrize(
    ("name", "variant", "error"),
    [("scale", "some-cpu", "None"), ("scales", None, "cannot import name 'scales'")],
)
def test_a_smoke_program_imports_what_users_import(
    tmp_path, monkeypatch, name, variant, error
) -> None:
    """Also where the report itself was asked to load nothing."""
    package = tmp_path / "live_op"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os\nif os.environ.get('LIVE_LOAD') != '0':\n    scale = lambda: 'some-cpu'\n"
    )
    (package / "smoke.py").write_text(SMOKE.format(name=name))
    monkeypatch.setenv("LIVE_LOAD", "0")
    project = NOBODY._replace(package="live_op", prefix="LIVE", folder=package)
    result = run_in_process(project)
    assert result["variant"] == variant
    assert error in str(result["error"])
