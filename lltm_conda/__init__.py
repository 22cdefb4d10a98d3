"""LLTM: a recurrent cell (an LSTM without a forget gate, with ELU inside) as a PyTorch op.

An import of the package chooses the binaries that fit torch and the machine, and loads them. If
none fits, the import raises :class:`LLTMImportError` with the cause and the fix. The command
``python -m lltm_conda`` shows for every binary whether it fits. Programs that need only
:mod:`lltm_conda.engine`, which does not know the op, set ``LLTM_CONDA_LOAD=0``, so that the
import loads no binaries.
"""

from typing import TYPE_CHECKING

from . import loader
from ._project import PROJECT as PROJECT
from ._version import __version__
from .loader import LLTMImportError

__all__ = [
    "LLTM",
    "LLTMFunction",
    "LLTMImportError",
    "LLTMLayer",
    "__version__",
    "decompositions",
    "lltm",
    "reference",
]


if TYPE_CHECKING or loader.LOADER.at_import():
    from .decomposition import decompositions
    from .functions import LLTMFunction, lltm
    from .layer import LLTMLayer
    from .modules import LLTM
    from .reference import reference
else:

    def __getattr__(name: str) -> object:
        raise loader.LOADER.absent(name, __all__)
