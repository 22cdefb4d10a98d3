"""Builders of all contenders by name: `CELLS` for one step, `LAYERS` for whole sequences."""

from ..compare import OURS, OURS_AGAIN
from ..contender import Builder
from . import cells, extension, flashrnn

CELLS: dict[str, Builder] = {
    "python": cells.plain_cell,
    "cpp": extension.cpp_cell,
    "cuda": extension.cuda_cell,
    "compile": cells.compiled_cell,
    "lstmcell": cells.lstm_cell,
    OURS: cells.our_cell,
    OURS_AGAIN: cells.our_cell,
}
LAYERS: dict[str, Builder] = {
    "lstm": cells.lstm,
    "gru": cells.gru,
    "python-loop": cells.plain_loop,
    "compile-loop": cells.compiled_loop,
    "flashrnn": flashrnn.alternating,
    "flashrnn-fused": flashrnn.fused,
    "ours-loop": cells.our_loop,
    OURS: cells.our_layer,
    OURS_AGAIN: cells.our_layer,
}
