"""The sizes that the commands measure: defaults, fixed grids, and random draws."""

import math
import random
from itertools import product
from typing import NamedTuple

from .contender import DTYPES
from .schema import Size

DEFAULTS = {
    ("cell", "cpu"): (Size(16, 32, 128), Size(256, 512, 1024)),
    ("cell", "cuda"): (Size(16, 32, 128), Size(64, 512, 1024), Size(256, 1024, 2048)),
    ("layer", "cpu"): (Size(16, 32, 128, 100),),
    ("layer", "cuda"): (
        Size(16, 128, 128, 256),
        Size(16, 512, 512, 256),
        Size(64, 1024, 1024, 256),
        Size(128, 2048, 2048, 256),
    ),
}
STATES = (100, 200, 300, 500, 650, 700, 1000, 1150, 1500, 2000, 2400, 3000)
"""State sizes that papers use; about half of the drawn layers have one of these."""
KINDS = {"cuda": ("float32", "tf32", "float16", "bfloat16"), "cpu": ("float32", "bfloat16")}
MOST_BYTES = 4e9
MOST_WORK = {"cuda": 2e13, "cpu": 2e10}
"""`draw` leaves out a size whose forward moves more bytes or has more operations than these."""


def forward_flops(size: Size) -> float:
    """Operations of the gate products of all steps; the pointwise part is not counted."""
    return 2.0 * size.steps * size.batch * (size.inputs + size.state) * 3 * size.state


def forward_elements(size: Size) -> int:
    """Elements that forward reads or writes: inputs, parameters, outputs and gates, each once."""
    row = size.batch * size.state
    parameters = 3 * size.state * (size.state + size.inputs + 1)
    of_a_step = size.batch * size.inputs + 4 * row
    return parameters + 3 * row + size.steps * of_a_step


def cell_grid() -> list[Size]:
    """The grid of single steps. The smallest come first, so a deadline cuts off the largest."""
    states = (16, 128, 512, 2048)
    batches = (1, 16, 64, 256, 1024)
    return sorted((Size(b, s // 4, s) for s, b in product(states, batches)), key=forward_flops)


def layer_grid() -> list[Size]:
    """The grid of sequences, sorted by length and then by operations."""
    steps = (16, 256, 2048)
    states = (64, 128, 256, 512, 1024, 2048)
    batches = (1, 16, 64, 256)
    sizes = [Size(b, s, s, t) for t, s, b in product(steps, states, batches)]
    return sorted(sizes, key=lambda size: (size.steps, forward_flops(size)))


class Draw(NamedTuple):
    size: Size
    dtype: str


def draw(what: str, seed: int, count: int, device: str) -> list[Draw]:
    """Draw layers or steps at random; docs/numbers/speed/random.md says how."""
    rng = random.Random(f"{what} {seed}")

    def between(low: int, high: int) -> int:
        """A log-uniform integer from `low` to `high`."""
        return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))

    draws: list[Draw] = []
    while len(draws) < count:
        if what == "layer":
            state = rng.choice(STATES) if rng.random() < 0.5 else rng.randint(16, 3072)
            size = Size(between(1, 512), rng.randint(16, 3072), state, between(8, 2048))
        else:
            size = Size(between(1, 4096), between(16, 4096), between(16, 4096))
        dtype = rng.choice(KINDS[device])
        bytes_moved = forward_elements(size) * DTYPES[dtype].itemsize
        if bytes_moved <= MOST_BYTES and forward_flops(size) <= MOST_WORK[device]:
            draws.append(Draw(size, dtype))
    return draws
