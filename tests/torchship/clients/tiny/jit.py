"""The op compiled just in time."""

from functools import partial

from .engine.runtime import local_build
from .loader import LOADER

load = partial(local_build.load, LOADER)
