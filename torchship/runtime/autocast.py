"""Autocast for the operators whose entry in the list of operators has `kAutocast`.

LibTorch's stable ABI cannot tell autocast's dtype, and cannot call an operator below autocast.
Therefore the glue only names these operators, and the loader registers the functions for their
dispatch keys here, in Python.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..judge.project import Project

#: By the type of device: torch's dispatch key.
_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
#: What is cast: as elsewhere in torch, float64 stays as it is.
_CAST = (torch.float32, torch.float16, torch.bfloat16)

#: Torch removes what a library registered when the object goes.
_libraries: list[torch.library.Library] = []


def register_autocast(operators: str, project: Project) -> None:
    """Registers autocast for the operators that a glue names, such as `norm:lower sum:float32`.

    `lower` stands for the dtype of the `torch.autocast` block. An operator that has a function
    for a key already keeps it.
    """
    library = torch.library.Library(project.namespace, "IMPL")
    _libraries.append(library)
    for entry in operators.split():
        name, _, target = entry.partition(":")
        operator = getattr(getattr(torch.ops, project.namespace), name).default
        for device_type, key in _KEYS.items():
            if torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key):
                continue
            dtype = torch.float32 if target == "float32" else None
            library.impl(name, _function(operator, device_type, dtype), key)


def _function(
    operator: torch._ops.OpOverload, device_type: str, dtype: torch.dtype | None
) -> Callable[..., object]:
    """The operator with its arguments cast to `dtype`; None stands for autocast's own dtype."""

    def with_cast(*arguments: object, **named: object) -> object:
        target = torch.get_autocast_dtype(device_type) if dtype is None else dtype
        with torch.autocast(device_type, enabled=False):
            return operator(
                *(_cast(value, device_type, target) for value in arguments),
                **{name: _cast(value, device_type, target) for name, value in named.items()},
            )

    return with_cast


def _cast(value: object, device_type: str, dtype: torch.dtype) -> object:
    if isinstance(value, torch.Tensor):
        is_cast = value.device.type == device_type and value.dtype in _CAST
        return value.to(dtype) if is_cast else value
    if isinstance(value, (list, tuple)):
        return [_cast(element, device_type, dtype) for element in value]
    return value
