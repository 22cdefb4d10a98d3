"""What the checker and the release tool compute to see that the op works."""

from .engine.runtime.live_run import LiveResult, Parts, live_run
from .loader import LOADER

DTYPES = ("int64", "int32", "uint8")
GRADIENTS = False


def parts() -> Parts:
    """The op, its definition, and arguments for both."""
    import torch

    from .functions import tally
    from .reference import reference

    values = torch.tensor([[3.0, 1, 4, 1, 5], [9, 2, 6, 5, 3]])  # becomes each dtype
    return tally, reference, [values, 11]


def run() -> LiveResult:
    """The live run of the checker's report."""
    return live_run(LOADER, parts, DTYPES, gradients=GRADIENTS)
