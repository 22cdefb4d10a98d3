"""Every contender by name."""

from ..contender import OURS, OURS_AGAIN, REDUCE_OVERHEAD
from . import cells, extension

CELLS = {
    "python": cells.plain_cell,
    "cpp": extension.cpp_cell,
    "cuda": extension.cuda_cell,
    "compile": cells.compiled_cell,
    REDUCE_OVERHEAD: cells.reduce_overhead_cell,
    "lstmcell": cells.lstm_cell,
    OURS: cells.our_cell,
    OURS_AGAIN: cells.our_cell,
}
LAYERS = {
    "lstm": cells.lstm,
    "python-loop": cells.loop_over(cells.plain_cell),
    "ours-loop": cells.loop_over(cells.our_cell),
    OURS: cells.our_layer,
    OURS_AGAIN: cells.our_layer,
}
"""For whole sequences."""
