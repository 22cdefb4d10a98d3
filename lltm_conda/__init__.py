"""LLTM: a recurrent cell (an LSTM without a forget gate, with ELU inside) as a PyTorch op.

Importing the package judges the binaries it carries, loads the one that fits the torch in the
environment, and raises :class:`LLTMImportError` with the cause and the command that mends it when
none does. ``python -m lltm_conda`` prints the same judgement as a table; it, and programs that set
``LLTM_CONDA_LOAD=0`` because they need only :mod:`lltm_conda.compat` or
:mod:`lltm_conda.builder`, import the package without loading anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import loader
from ._project import PROJECT as PROJECT
from ._version import __version__
from .engine import aliases
from .loader import LLTMImportError

# The names that parts of the engine had before it was a package: the very modules, not copies.
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
