"""The package under test, through the door that its loader took in this process.

Set ``LLTM_CONDA_VARIANT`` to measure another door; the report records which binaries were loaded.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from torch import Tensor

from ..package_path import prefer_installed
from ..problem import Cell, State, randomise
from . import Request, Unavailable


def package() -> ModuleType:
    """Import `lltm_conda`, or say why it cannot be."""
    prefer_installed()
    try:
        return importlib.import_module("lltm_conda")
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise Unavailable(
            f"lltm_conda does not load: {reason[0]} (python -m lltm_conda says more)"
        ) from error


def _name(name: str) -> type:
    found = getattr(package(), name, None)
    if found is None:
        raise Unavailable(f"this lltm_conda has no {name}: build a version that has it")
    return found


def cell(request: Request) -> Cell:
    """The contender `ours`: `lltm_conda.LLTM`."""
    kind = _name("LLTM")
    module = kind(
        request.size.inputs, request.size.state, device=request.device, dtype=request.dtype
    )
    randomise(module, request.size.state, request.seed)
    return Cell("lltm", module, module)


def layer(request: Request) -> Cell:
    """The contender `ours` of the layer benchmark: `lltm_conda.LLTMLayer`."""
    kind = _name("LLTMLayer")
    module = kind(
        request.size.inputs, request.size.state, device=request.device, dtype=request.dtype
    )
    randomise(module, request.size.state, request.seed)

    def call(x: Tensor, state: State) -> tuple[Tensor, ...]:
        output, final = module(x, state)
        return output, *final

    return Cell("lltm", module, call, stacked=True)
