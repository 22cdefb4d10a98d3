"""LLTM: a recurrent cell (an LSTM without a forget gate, with ELU inside) as a PyTorch op.

Importing the package judges its binaries and loads those that fit the torch in the environment. If
none fits, the import raises :class:`LLTMImportError` with the cause and the command that mends it.
``python -m lltm_conda`` prints the same judgement as a table, and loads nothing for it. Programs
that need only :mod:`lltm_conda.compat` or :mod:`lltm_conda.builder` set ``LLTM_CONDA_LOAD=0`` to
import the package without loading anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import loader
from ._project import PROJECT as PROJECT
from ._version import __version__
from .engine import aliases
from .loader import LLTMImportError

# The names that parts of the engine had before it was a package; the modules are the same.
for _name in ("compat", "builder", "local_build"):
    aliases.add(f"{__name__}.{_name}", f"{__name__}.engine.{_name}")

__all__ = [
    "LLTM",
    "LLTMFunction",
    "LLTMImportError",
    "LLTMLayer",
    "__version__",
    "lltm",
    "reference",
]


if TYPE_CHECKING or loader.LOADER.at_import():
    from .functions import LLTMFunction, lltm
    from .layer import LLTMLayer
    from .modules import LLTM
    from .reference import reference
else:

    def __getattr__(name: str) -> object:
        raise loader.LOADER.absent(name, __all__)
