"""The op compiled just in time, for a torch that no binary serves.

    $ OWN_OP_LOAD=0 python
    >>> from own_op import jit
    >>> jit.load()

The variable keeps the package from loading a binary of its own before.
"""

from functools import partial

from .engine.runtime import local_build
from .loader import LOADER

load = partial(local_build.load, LOADER)
