"""LLTM: a recurrent cell (an LSTM without a forget gate, with ELU inside) as a PyTorch op.

Importing the package judges the binaries it carries, loads the one that fits the torch in the
environment, and raises :class:`LLTMImportError` with the cause and the command that mends it when
none does. ``python -m lltm_conda`` prints the same judgement as a table; it, and programs that set
``LLTM_CONDA_LOAD=0`` because they need only :mod:`lltm_conda.compat` or
:mod:`lltm_conda.builder`, import the package without loading anything.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ._version import __version__

__all__ = [
    "LLTM",
    "LLTMFunction",
    "LLTMImportError",
    "LLTMLayer",
    "__version__",
    "lltm",
    "reference",
]


def _runs_as_program() -> bool:
    # runpy sets argv[0] to "-m" while it imports the package of the module that it will run.
    return sys.argv[:1] == ["-m"] and __name__ in sys.orig_argv


if TYPE_CHECKING or not (_runs_as_program() or os.environ.get("LLTM_CONDA_LOAD") == "0"):
    from .loader import LLTMImportError, load

    load()

    from .functions import LLTMFunction, lltm
    from .layer import LLTMLayer
    from .modules import LLTM
    from .reference import reference
