"""The op compiled just in time, for a torch that no binary serves: `own_op.jit.load()`.

Start Python with `OWN_OP_LOAD=0`, so that the package loads no binary of its own before.
"""

from .engine.jit import Jit
from .loader import LOADER

load = Jit(LOADER).load
