"""Every contender by name."""

from ..contender import OURS, OURS_AGAIN, REDUCE_OVERHEAD, Builder
from . import extension, ours, plain, recurrent


def cell_contenders() -> dict[str, Builder]:
    return {
        "python": plain.plain_cell,
        "cpp": extension.cpp_cell,
        "cuda": extension.cuda_cell,
        "compile": plain.compiled_cell,
        REDUCE_OVERHEAD: plain.reduce_overhead_cell,
        "lstmcell": recurrent.lstm_cell,
        OURS: ours.cell,
        OURS_AGAIN: ours.cell,
    }


def layer_contenders() -> dict[str, Builder]:
    """Contenders for a whole sequence. The loops call a cell from Python at every step."""
    return {
        "lstm": recurrent.lstm,
        "python-loop": recurrent.loop_over(plain.plain_cell),
        "ours-loop": recurrent.loop_over(ours.cell),
        OURS: ours.layer,
        OURS_AGAIN: ours.layer,
    }
