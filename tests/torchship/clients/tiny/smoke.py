"""What the checker computes to see that the op works."""

from .engine.runtime.live_run import LiveResult, Parts, live_run
from .loader import LOADER

DTYPES = ("float32",)
GRADIENTS = False


def parts() -> Parts:
    import torch

    from .functions import scale
    from .reference import reference

    return scale, reference, [torch.linspace(-2, 3, 5000, dtype=torch.float64), 1.5]


def run() -> LiveResult:
    return live_run(LOADER, parts, DTYPES, gradients=GRADIENTS)
