"""A live run of the op, forward and backward, against the plain PyTorch definition, per device."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from . import loader
from .engine import live_run

if TYPE_CHECKING:
    from .engine.live_run import Parts

_BATCH, _INPUT, _STATE = 5, 7, 11


def parts() -> Parts:
    """The cell, its definition, and arguments of one step."""
    import torch

    from .functions import lltm
    from .reference import reference

    generator = torch.Generator().manual_seed(7)
    shapes = (
        (_BATCH, _INPUT),
        (3 * _STATE, _STATE + _INPUT),
        (3 * _STATE,),
        (_BATCH, _STATE),
        (_BATCH, _STATE),
    )
    values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return lltm, reference, values


def check_device(device: str) -> dict[str, Any]:
    """Compute one step on `device` and compare it; see :func:`engine.live_run.check_device`."""
    return live_run.check_device(device, parts)


def run() -> dict[str, Any]:
    """Load the binaries and check every device that torch sees."""
    return live_run.live_run(loader.LOADER, parts)


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
