"""Compares the op with the reference, forward and backward, on the CPU and all CUDA devices."""

from functools import partial

from . import loader
from .engine.runtime import live_run

#: The dtypes that the op takes: the live run and the smoke test try each of them.
DTYPES = ("float64", "float32", "float16", "bfloat16")
#: Whether the op has gradients.
GRADIENTS = True
#: `engine_smoke.py` compares op and definition in these shapes: (B, I, S) for a step, (T, B,
#: I, S) for a sequence. The layer's kernels depend on the sizes, so there are several
#: sequences.
SHAPES = (
    *((1, 1, 1), (16, 32, 128), (5, 7, 3), (0, 4, 4)),
    *((4, 5, 7, 3), (5, 4, 8, 64), (6, 16, 32, 128), (3, 40, 16, 512)),
)


def parts(*shape: int) -> live_run.Parts:
    """The op, its definition, and random arguments: the cell for (B, I, S), the layer for
    (T, B, I, S)."""
    import torch

    from .functions import lltm
    from .layer_functions import lltm_sequence, steps_of_cells
    from .reference import reference

    *steps, batch, features, state = shape or (5, 7, 11)
    generator = torch.Generator().manual_seed(7)
    values = [
        scale * torch.randn(size, generator=generator, dtype=torch.float64)
        for size, scale in (
            ((*steps, batch, features), 1.0),
            ((3 * state, state + features), (state + features) ** -0.5),
            ((3 * state,), 0.1),
            ((batch, state), 1.0),
            ((batch, state), 1.0),
        )
    ]
    if steps:
        return lltm_sequence, partial(steps_of_cells, reference), values
    return lltm, reference, values


def run() -> live_run.LiveResult:
    """Loads the binaries and checks the op on the CPU and on every CUDA device."""
    return live_run.live_run(loader.LOADER, parts, DTYPES, gradients=GRADIENTS)
