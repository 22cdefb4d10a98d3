"""Compares a project's op with its definition, forward and backward, on the CPU and on GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict

from .loader import BinariesCudaError, Loader

if TYPE_CHECKING:
    import torch

    from ..judge.project import Project

#: The largest accepted relative differences by dtype: far above rounding errors, far below a
#: wrong op's. Other dtypes, integers and bool, must be equal.
TOLERANCES = {
    "float64": 1e-12,
    "float32": 1e-5,
    "float16": 5e-3,
    "bfloat16": 3e-2,
    "float8_e4m3fn": 1e-1,
    "float8_e5m2": 2e-1,
    "complex128": 1e-12,
    "complex64": 1e-5,
}
#: What is tried where a project's smoke.py names no dtypes.
WIDE_DTYPES = ("float64", "float32")
_DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA"}

#: An op or its definition: tensors or other values in, one value or several out.
Function = Callable[..., object]
#: The op, its definition in plain PyTorch, and arguments for both.
#:
#: Floating-point tensors, on the CPU and best in float64, become the dtype under test; so do
#: complex ones where that dtype is complex. A `torch.device` becomes the device under test, a
#: `torch.dtype` the dtype under test. All else, such as a tensor of indices, stays as it is.
Parts = tuple[Function, Function, Sequence[object]]


class DeviceResult(TypedDict):
    """The comparison on one device."""

    device: str
    ok: bool
    error: str | None  #: None if `ok`
    differences: dict[str, float]  #: the largest relative difference for each dtype


class _LiveFacts(TypedDict):
    variant: str | None
    error: str | None
    devices: list[DeviceResult]  #: empty if the operators serve no device of this machine


class LiveResult(_LiveFacts, total=False):
    """The result of a live run; docs/fails/compat.md ("smoke") describes the fields."""

    gradients: bool  #: whether gradients were compared; absent: they were


def tolerance(dtype: str) -> float:
    return TOLERANCES.get(dtype, 0.0)


def live_run(
    loader: Loader,
    parts: Callable[[], Parts],
    dtypes: Sequence[str] = WIDE_DTYPES,
    *,
    gradients: bool = True,
) -> LiveResult:
    """Loads the binaries, and checks the op of `parts()` on every device that it serves.

    Args:
        dtypes: torch's names of those that the op takes.
        gradients: whether the op has gradients; integers, bool and float8 never have.
    """
    try:
        loaded = loader.load()
        import torch
    except ImportError as error:
        return {"variant": None, "error": str(error), "devices": []}
    devices: list[str] = []
    for device_type in served_devices(loader.project):
        if device_type == "cpu":
            devices.append("cpu")
        elif torch.version.cuda is not None and torch.cuda.is_available():
            devices += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    results = [
        _check_device(device, loader, parts, dtypes, gradients=gradients) for device in devices
    ]
    compared: LiveResult = {"variant": loaded.variant, "error": None, "devices": results}
    if not gradients:
        compared["gradients"] = False
    return compared


def served_devices(project: Project) -> list[str]:
    """The types of device, `cpu` and `cuda`, for which the project's operator is registered.

    An operator without tensors among its arguments is registered for no device; it serves those
    that have kernels or, without any kernels, both. So does one of which torch knows overloads
    alone, and one bound by PYBIND11_MODULE, which is for any device.
    """
    import torch

    name = f"{project.namespace}::{project.operator}"
    registered: list[str] = []
    with suppress(RuntimeError):  # there is no operator of this very name
        for device_type, key in _DISPATCH_KEYS.items():
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
                registered.append(device_type)
    if registered:
        return registered
    return ["cuda"] if project.is_for_cuda_alone else list(project.kernels or _DISPATCH_KEYS)


def _check_device(
    device: str,
    loader: Loader,
    parts: Callable[[], Parts],
    dtypes: Sequence[str],
    *,
    gradients: bool,
) -> DeviceResult:
    """Compares the op on `device` with its definition, in each dtype."""
    error = None
    differences: dict[str, float] = {}
    try:
        if device != "cpu":
            loader.check_cuda(int(device.partition(":")[2]))
        for dtype in dtypes:
            worst = difference(parts(), device, dtype, gradients=gradients)
            differences[dtype] = worst
            if not worst <= tolerance(dtype):  # also true for a NaN
                error = f"{dtype}: {_describe(worst, tolerance(dtype))}"
                break
    except BinariesCudaError as failure:
        error = f"{failure.finding.why}; to fix: {failure.finding.fix}"
    except Exception as failure:  # the report must name every failure
        error = f"{type(failure).__name__}: {' '.join(str(failure).split())}"  # CUDA's has lines
        package = loader.project.package
        if isinstance(failure, ImportError) and failure.name == package:
            error += (
                f"; the checker imports {package} without its operators, so {package}/smoke.py "
                "must import from the module that defines the name, as `from .functions import ...`"
            )
    return {"device": device, "ok": error is None, "error": error, "differences": differences}


def _describe(worst: float, allowed: float) -> str:
    if math.isnan(worst):
        return (
            "has NaN, or other results or gradients than the reference; "
            "an op without gradients says GRADIENTS = False in its smoke.py"
        )
    return f"differs from the reference by {worst:.1e}, more than {allowed:.0e}"


def has_gradients(dtype: torch.dtype) -> bool:
    """Whether autograd differentiates tensors of this dtype, with all of their operations."""
    return dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1)


def arguments_for(
    samples: Sequence[object], device: str, dtype: torch.dtype, *, gradients: bool
) -> list[object]:
    """Copies of the samples for a device and a dtype, as `Parts` says.

    With `gradients`, the tensors that became `dtype` require them.
    """
    import torch

    def convert(sample: object) -> object:
        if isinstance(sample, torch.device):
            return torch.device(device)
        if isinstance(sample, torch.dtype):
            return dtype
        if not isinstance(sample, torch.Tensor):
            return sample
        if not _is_converted(sample, dtype):
            return sample.to(device, copy=True)
        return sample.to(device, dtype, copy=True).requires_grad_(gradients)

    return [convert(sample) for sample in samples]


def _is_converted(sample: torch.Tensor, dtype: torch.dtype) -> bool:
    return sample.is_floating_point() or (sample.is_complex() and dtype.is_complex)


def difference(parts: Parts, device: str, dtype: str, *, gradients: bool = True) -> float:
    """The largest relative difference (in the 2-norm) between the tensors of op and definition.

    The tensors are the outputs and, with `gradients`, the gradients of all arguments that can
    have them. The definition gets the same rounded values, in float64 or complex128, or as they
    are if they are integers. NaN if one side has more tensors, or other shapes.
    """
    import torch

    op, definition, samples = parts
    kind = _dtype_of(dtype)
    gradients = gradients and has_gradients(kind)
    exact_kind = kind
    if kind.is_complex:
        exact_kind = torch.complex128
    elif kind.is_floating_point:
        exact_kind = torch.float64
    rounded = [
        sample.to(kind)
        if isinstance(sample, torch.Tensor) and _is_converted(sample, kind)
        else sample
        for sample in samples
    ]
    ours = _run(op, arguments_for(rounded, device, kind, gradients=gradients))
    exact = _run(definition, arguments_for(rounded, "cpu", exact_kind, gradients=gradients))
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in exact]:
        return float("nan")
    return max((_relative(a, b) for a, b in zip(ours, exact, strict=True)), default=0.0)


def _dtype_of(name: str) -> torch.dtype:
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(
            f"DTYPES in smoke.py names {name!r}, which is not a dtype of torch "
            f"{torch.__version__}; name those that the op takes, such as float32"
        )
    return dtype


def _run(function: Function, arguments: list[object]) -> list[torch.Tensor]:
    """The results, then the gradients of the arguments that require them."""
    import torch

    result = function(*arguments)
    values = result if isinstance(result, (tuple, list)) else (result,)
    outputs = [
        value if isinstance(value, torch.Tensor) else torch.as_tensor(value) for value in values
    ]
    differentiable = [output for output in outputs if output.requires_grad]
    if differentiable:
        # The weights differ, so that swapped outputs or elements give wrong gradients.
        upstream = [
            torch.linspace(number + 1, number + 2, output.numel()).reshape(output.shape).to(output)
            for number, output in enumerate(differentiable)
        ]
        torch.autograd.backward(differentiable, upstream)
    leaves = [value for value in arguments if isinstance(value, torch.Tensor)]
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    return [*(output.detach() for output in outputs), *gradients]


def _relative(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """If the exact tensor is zero, as for an empty batch, the difference is absolute."""
    import torch

    kind = torch.complex128 if ours.is_complex() or exact.is_complex() else torch.float64
    right = exact.cpu().to(kind)
    return float((ours.cpu().to(kind) - right).norm() / (right.norm() if right.any() else 1))
