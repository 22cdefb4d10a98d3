"""The engine's loader, bound to this package."""

from ._project import PROJECT
from .engine.runtime.loader import Loader

LOADER = Loader(PROJECT)
