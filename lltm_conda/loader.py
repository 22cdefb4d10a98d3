"""The engine's loader, bound to this package.

`engine` is a copy of parts of the folder torchship; in a bare checkout, it is torchship itself.
"""

from ._project import PROJECT
from .engine.runtime.loader import BinariesCudaError, BinariesImportError, Loader


class LLTMImportError(BinariesImportError):
    """The binaries of the package cannot be loaded here; `finding` is the cause.

    `selection` holds the verdicts that led to it; None if the loader stopped before judging.
    """


class LLTMCudaError(BinariesCudaError):
    """The op cannot compute on CUDA tensors here; `finding` is the cause."""


LOADER = Loader(PROJECT, LLTMImportError, LLTMCudaError)
load = LOADER.load
loaded = LOADER.loaded
check_cuda = LOADER.check_cuda
# Each step looks here before it calls `check_cuda`: the call and its device object take longer.
checked_devices = LOADER.checked_devices
