"""A tensor times a number."""

from typing import TYPE_CHECKING

from ._version import __version__
from .loader import LOADER

__all__ = ["__version__", "reference", "scale"]

# Loads the operators, except for the checker and for jit.load, which come before them.
if TYPE_CHECKING or LOADER.at_import():
    from .functions import scale
    from .reference import reference
else:

    def __getattr__(name: str) -> object:
        raise LOADER.absent(name, __all__)
