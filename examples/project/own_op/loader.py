"""The engine's loader, bound to this package."""

from ._project import PROJECT
from .engine.loader import Loader

LOADER = Loader(PROJECT)
