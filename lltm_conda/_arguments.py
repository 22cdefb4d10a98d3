"""Checks of what users hand to the modules. A message names what they gave, and says what to do."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

#: The dtypes for which there are kernels.
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def either(owner: str, **names: T | None) -> T:
    """The value of an argument that has two names; the caller must use exactly one name."""
    passed = {name: value for name, value in names.items() if value is not None}
    if len(passed) != 1:
        raise TypeError(
            f"{owner} needs one of {' and '.join(names)}, got {' and '.join(passed) or 'none'}; "
            "pass exactly one"
        )
    return next(iter(passed.values()))


def check_size(owner: str, name: str, value: object, *, least: int) -> int:
    """A size as an int.

    Raises:
        TypeError: it is no integer.
        ValueError: it is below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{owner} needs an integer {name}, got {type(value).__name__}: {value!r}; "
            f"pass an int >= {least}"
        )
    size = int(value)
    if size < least:
        raise ValueError(f"{owner} needs {name} >= {least}, got {name}={size}; pass a larger one")
    return size


def check_flag(owner: str, name: str, value: object) -> bool:
    """Refuses all but True and False: the text "False" is true."""
    if not isinstance(value, bool):
        raise TypeError(
            f"{owner} needs True or False as {name}, got {type(value).__name__}: {value!r}; "
            "pass a bool"
        )
    return value


def check_dtype(owner: str, dtype: torch.dtype | None) -> None:
    """Refuses a dtype for which there are no kernels; None stands for torch's default."""
    if dtype is None or dtype in DTYPES:
        return
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"{owner} needs a torch.dtype as dtype, got {type(dtype).__name__}: {dtype!r}; pass "
            "one such as torch.float32"
        )
    advice = "the cell is defined for real numbers: " if dtype.is_complex else ""
    raise ValueError(
        f"{owner} needs a dtype of float32, float64, float16 or bfloat16, got {dtype}; "
        f"{advice}pass one of these"
    )


def check_probability(owner: str, name: str, value: object) -> float:
    """A number from 0 to 1. As in ``torch.nn.LSTM``, a bool is none."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0.0 <= float(value) <= 1.0:  # type: ignore[arg-type]
        raise ValueError(
            f"{owner} needs {name} from 0 to 1, got {type(value).__name__}: {value!r}; "
            "pass a probability"
        )
    return float(value)  # type: ignore[arg-type]


def check_pair(name: str, state: object, members: tuple[str, str]) -> None:
    """Refuses a state that is no pair of tensors; `members` names the two."""
    first, second = members
    if not isinstance(state, (tuple, list)):
        raise RuntimeError(
            f"lltm: {name} must be a tuple ({first}, {second}), got {type(state).__name__}; pass "
            "both tensors"
        )
    if len(state) != 2:
        raise RuntimeError(
            f"lltm: {name} must be a tuple ({first}, {second}), got {len(state)} elements; pass "
            "both tensors"
        )
    for member, tensor in zip(members, state, strict=True):
        if not isinstance(tensor, Tensor):
            raise RuntimeError(
                f"lltm: {member} of {name} must be a torch.Tensor, got {type(tensor).__name__}; "
                f"without a state, pass {name}=None"
            )


def unsupported(name: str, tensor: Tensor) -> str | None:
    """Why no kernel takes a tensor of this kind, whatever its dtype; None if some do."""
    if tensor.is_nested:
        return (
            f"lltm: {name} must be a dense (strided) tensor, got a nested one; pad it with "
            f"torch.nested.to_padded_tensor({name}, 0.0), or give an LLTMLayer a PackedSequence"
        )
    if tensor.layout is not torch.strided:
        return (
            f"lltm: {name} must be a dense (strided) tensor, got layout {tensor.layout}; "
            f"convert it with {name}.to_dense()"
        )
    if tensor.is_quantized:
        return (
            f"lltm: {name} must be float32, float64, float16 or bfloat16, got the quantized "
            f"dtype {tensor.dtype}; convert it with {name}.dequantize()"
        )
    if tensor.device.type not in ("cpu", "cuda", "meta"):
        return (
            f"lltm: {name} must be a CPU or CUDA tensor, got one on {tensor.device}; there are "
            "no kernels for that device. lltm_conda.reference computes the cell in plain "
            "PyTorch"
        )
    return None


def check_supported(name: str, tensor: Tensor) -> None:
    """Refuses, with a NotImplementedError, a tensor of a kind that no kernel takes."""
    reason = unsupported(name, tensor)
    if reason is not None:
        raise NotImplementedError(reason)


def complex_advice(name: str) -> str:
    """How to hand complex numbers to the cell, for the end of an error message."""
    return (
        "the cell is defined for real numbers: pass real and imaginary parts as features, "
        f"torch.view_as_real({name}).flatten(-2)"
    )


def check_like_parameters(
    name: str,
    tensor: Tensor,
    parameter: Tensor,
    *,
    wrong_dtype: type[Exception] = RuntimeError,
) -> None:
    """Refuses a tensor with another dtype or device than the module's parameters have.

    `wrong_dtype` is the class of the error about a dtype.
    """
    if tensor.is_complex():
        raise wrong_dtype(
            f"lltm: {name} must be a real tensor, got {tensor.dtype}; pass its real and imaginary "
            f"parts as features: torch.view_as_real({name}).flatten(-2)"
        )
    if tensor.dtype != parameter.dtype:
        other = f", or the module with module.to({tensor.dtype})" if tensor.dtype in DTYPES else ""
        raise wrong_dtype(
            f"lltm: {name} must have the dtype of the module, {parameter.dtype}, got "
            f"{tensor.dtype}; convert it with {name}.to({parameter.dtype}){other}"
        )
    if tensor.device != parameter.device:
        raise RuntimeError(
            f"lltm: {name} must be on the device of the module, {parameter.device}, got "
            f"{tensor.device}; move it with {name}.to({str(parameter.device)!r}), or the module "
            f"with module.to({str(tensor.device)!r})"
        )
