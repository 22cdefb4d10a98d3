"""The engine's loader, bound to this package."""

from ._project import PROJECT
from .engine.runtime.loader import BinariesCudaError, BinariesImportError, Loader


class TinyImportError(BinariesImportError):
    """The binaries of the package cannot be loaded here."""


class TinyCudaError(BinariesCudaError):
    """The op cannot compute on CUDA tensors here."""


LOADER = Loader(PROJECT, TinyImportError, TinyCudaError)
