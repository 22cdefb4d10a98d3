"""The engine's loader, bound to this package."""

from ._project import PROJECT
from .engine.loader import BinariesCudaError, BinariesImportError, Loader


class LLTMImportError(BinariesImportError):
    """No binary of the package can be used here.

    Attributes:
        finding: the cause.
        selection: every verdict that led to the cause; None if no file was judged.
    """


class LLTMCudaError(BinariesCudaError):
    """The op cannot compute on CUDA tensors here; `finding` is the cause."""


LOADER = Loader(PROJECT, LLTMImportError, LLTMCudaError)
load, loaded, check_cuda = LOADER.load, LOADER.loaded, LOADER.check_cuda
