"""Counts of numbers."""

from typing import TYPE_CHECKING

from ._version import __version__
from .loader import LOADER

__all__ = ["__version__", "reference", "tally"]

if TYPE_CHECKING or LOADER.at_import():
    from .functions import tally
    from .reference import reference
else:

    def __getattr__(name: str) -> object:
        raise LOADER.absent(name, __all__)
