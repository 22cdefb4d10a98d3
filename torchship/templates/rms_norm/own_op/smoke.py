"""What the checker and the release tool compute to see that the op works."""

from .engine.runtime.live_run import LiveResult, Parts, live_run, served_devices
from .loader import LOADER

#: The dtypes that the op takes. The checker, the release tool and the tests try each of them, and
#: no other.
DTYPES = ("float64", "float32", "float16", "bfloat16")
#: Whether the op has gradients.
GRADIENTS = True


def parts() -> Parts:
    """The op, its definition, and float64 arguments for both, none of which shares memory."""
    import torch

    from .functions import rms_norm
    from .reference import reference

    x = torch.linspace(-2, 3, 5 * 24, dtype=torch.float64).reshape(5, 24)
    weight = torch.linspace(1, 2, 24, dtype=torch.float64)
    return rms_norm, reference, [x, weight]


def devices() -> list[str]:
    """The types of device, `cpu` and `cuda`, for which the operator is registered."""
    return served_devices(LOADER.project)


def run() -> LiveResult:
    """The live run of the checker's report."""
    return live_run(LOADER, parts, DTYPES, gradients=GRADIENTS)
