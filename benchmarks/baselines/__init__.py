"""Builders of all contenders by name: `CELLS` for one step, `LAYERS` for whole sequences."""

from ..contender import OURS, OURS_AGAIN
from . import cells, extension

CELLS = {
    "python": cells.plain_cell,
    "cpp": extension.cpp_cell,
    "cuda": extension.cuda_cell,
    "compile": cells.compiled_cell,
    "lstmcell": cells.lstm_cell,
    OURS: cells.our_cell,
    OURS_AGAIN: cells.our_cell,
}
LAYERS = {
    "lstm": cells.lstm,
    "python-loop": cells.plain_loop,
    "ours-loop": cells.our_loop,
    OURS: cells.our_layer,
    OURS_AGAIN: cells.our_layer,
}
