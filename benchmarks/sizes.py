"""The sizes that are measured by default, the fixed grids, and how much work a size is."""

from itertools import product

from .schema import Size

CELL = {
    "cpu": (Size(16, 32, 128), Size(256, 512, 1024)),
    "cuda": (Size(16, 32, 128), Size(64, 512, 1024), Size(256, 1024, 2048)),
}
KERNELS = (Size(16, 32, 128), Size(4096, 1024, 4096))
LAYER = {
    "cpu": (Size(16, 32, 128, 100),),
    "cuda": (
        Size(16, 128, 128, 256),
        Size(16, 512, 512, 256),
        Size(64, 1024, 1024, 256),
        Size(128, 2048, 2048, 256),
    ),
}
GRID_BATCHES = (1, 16, 64, 256, 1024)
GRID_STATES = (16, 128, 512, 2048)
LAYER_GRID_BATCHES = (1, 16, 64, 256)
LAYER_GRID_STATES = (64, 128, 256, 512, 1024, 2048)
LAYER_GRID_STEPS = (16, 256, 2048)


def forward_flops(size: Size) -> float:
    """Operations of the gate products of all steps; the pointwise part is not counted."""
    return 2.0 * size.steps * size.batch * (size.inputs + size.state) * 3 * size.state


def forward_elements(size: Size) -> int:
    """Elements that forward reads or writes: inputs, parameters, outputs and gates, each once."""
    b, i, s, t = size.batch, size.inputs, size.state, size.steps
    return 3 * s * (s + i + 1) + 3 * b * s + t * (b * i + 4 * b * s)


def defaults(is_layer: bool, device: str, protocol: str) -> tuple[Size, ...]:
    """The sizes that `cell` and `layer` measure by default."""
    if is_layer:
        return LAYER[device]
    return KERNELS if protocol == "kernels" else CELL[device]


def cell_grid() -> list[Size]:
    """The grid of single steps; the smallest come first, so that a deadline cuts the largest."""
    sizes = [Size(b, s // 4, s) for s, b in product(GRID_STATES, GRID_BATCHES)]
    return sorted(sizes, key=forward_flops)


def layer_grid() -> list[Size]:
    """The grid of sequences; the shortest and smallest come first."""
    sizes = [
        Size(b, s, s, t)
        for t, s, b in product(LAYER_GRID_STEPS, LAYER_GRID_STATES, LAYER_GRID_BATCHES)
    ]
    return sorted(sizes, key=lambda size: (size.steps, forward_flops(size)))
