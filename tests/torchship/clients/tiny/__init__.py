"""A small client of torchship: a tensor times a number, on the CPU alone."""

from typing import TYPE_CHECKING

from ._version import __version__
from .loader import LOADER

__all__ = ["__version__", "reference", "scale"]

if TYPE_CHECKING or LOADER.at_import():
    from .functions import scale
    from .reference import reference
else:

    def __getattr__(name: str) -> object:
        raise LOADER.absent(name, __all__)
