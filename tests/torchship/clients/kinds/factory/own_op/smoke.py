"""What the checker and the release tool compute to see that the op works."""

from .engine.runtime.live_run import LiveResult, Parts, live_run
from .loader import LOADER

DTYPES = ("float32", "float64", "int16", "complex64")
GRADIENTS = False


def parts() -> Parts:
    """The op, its definition, and arguments; dtype and device stand for those under test."""
    import torch

    from .functions import ramp
    from .reference import reference

    return ramp, reference, [7, 2.0, torch.float64, torch.device("cpu")]


def run() -> LiveResult:
    """The live run of the checker's report."""
    return live_run(LOADER, parts, DTYPES, gradients=GRADIENTS)
