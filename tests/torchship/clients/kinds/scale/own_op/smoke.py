"""What the checker and the release tool compute to see that the op works."""

from .engine.runtime.live_run import LiveResult, Parts, live_run, served_devices
from .loader import LOADER

DTYPES = ("float64", "float32", "float16", "bfloat16")  # each is tried, and no other
GRADIENTS = True  # whether the op has them


def parts() -> Parts:
    """The op, its definition, and arguments for both, in float64."""
    import torch

    from .functions import scale
    from .reference import reference

    return scale, reference, [torch.linspace(-2, 3, 120, dtype=torch.float64), 1.5]


def devices() -> list[str]:
    """The types of device, `cpu` and `cuda`, for which the operator is registered."""
    return served_devices(LOADER.project)


def run() -> LiveResult:
    """The live run of the checker's report."""
    return live_run(LOADER, parts, DTYPES, gradients=GRADIENTS)
