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

from . import _old_names, loader  # noqa: F401
from ._project import PROJECT as PROJECT
from ._version import __version__
from .loader import LLTMImportError

__all__ = [
    "LLTM",
    "LLTMFunction",
    "LLTMImportError",
    "LLTMLayer",
    "__version__",
    "lltm",
    "reference",
]


def _is_the_program() -> bool:
    """Whether Python was started as `python -m lltm_conda`."""
    # While runpy imports the package, argv is "-m" and what follows the name of the module.
    if sys.argv[:1] != ["-m"]:
        return False
    module = sys.orig_argv[-len(sys.argv)]  # "lltm_conda", or joined to options: "-mlltm_conda"
    return module == __name__ or (module.startswith("-") and module.endswith(f"m{__name__}"))


if (
    TYPE_CHECKING
    or loader.loaded() is not None
    or not (_is_the_program() or os.environ.get("LLTM_CONDA_LOAD") == "0")
):
    loader.load()

    from .functions import LLTMFunction, lltm
    from .layer import LLTMLayer
    from .modules import LLTM
    from .reference import reference
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise ImportError(
            f"{__name__}.{name} is not there, because LLTM_CONDA_LOAD=0 lets the package be "
            "imported without its binaries; unset LLTM_CONDA_LOAD and start Python again, or call "
            "lltm_conda.jit.load()",
            name=__name__,
        )
