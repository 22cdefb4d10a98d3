"""Every contender, by name. A builder returns a `Cell`, or raises `Unavailable` with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..problem import Cell
from ..schema import Size

OURS = "ours"
OURS_AGAIN = "ours-again"
"""Ours a second time: what it differs by is the noise of the run."""


class Unavailable(RuntimeError):
    """This contender cannot run here; the message says why and what would change that."""


@dataclass(frozen=True)
class Request:
    """What a contender is built for."""

    size: Size
    dtype: torch.dtype
    device: str
    seed: int = 0


Builder = Callable[[Request], Cell]


def cell_contenders() -> dict[str, Builder]:
    """Of one step."""
    from . import compiled, extension, ours, recurrent
    from .plain import plain_cell

    return {
        "python": plain_cell,
        "cpp": extension.cpp_cell,
        "cuda": extension.cuda_cell,
        "compile": compiled.compiled_cell,
        "compile-reduce-overhead": compiled.reduce_overhead_cell,
        "lstmcell": recurrent.lstm_cell,
        OURS: ours.cell,
        OURS_AGAIN: ours.cell,
    }


def layer_contenders() -> dict[str, Builder]:
    """Of a whole sequence. The loops call a cell once a step from Python."""
    from . import extension, ours, recurrent
    from .plain import plain_cell

    return {
        "lstm": recurrent.lstm,
        "gru": recurrent.gru,
        "python-loop": recurrent.loop_over(plain_cell),
        "cpp-loop": recurrent.loop_over(extension.cpp_cell),
        "cuda-loop": recurrent.loop_over(extension.cuda_cell),
        "ours-loop": recurrent.loop_over(ours.cell),
        OURS: ours.layer,
        OURS_AGAIN: ours.layer,
    }
