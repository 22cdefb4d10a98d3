"""The package under test, through the glue that its loader chose in this process."""

import importlib
import sys
from pathlib import Path

from torch import nn

from ..contender import Cell, Request, Unavailable, prepared
from ..machine import ROOT
from .recurrent import layer_of


def _module(name: str, request: Request) -> nn.Module:
    # `python -m benchmarks` puts the repository first on the path. Its sources may lack binaries,
    # so the installed package must come before it.
    sys.path.sort(key=lambda entry: Path(entry or ".").resolve() == ROOT)
    try:
        kind = getattr(importlib.import_module("lltm_conda"), name)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise Unavailable(
            f"lltm_conda does not load: {reason[0]} (python -m lltm_conda says more)"
        ) from error
    return prepared(kind, request)


def cell(request: Request) -> Cell:
    module = _module("LLTM", request)
    return Cell("lltm", module, module)


def layer(request: Request) -> Cell:
    return layer_of("lltm", _module("LLTMLayer", request))
