"""Runs a module of the torchship that holds this file: run_module.py MODULE [ARGUMENT ...].

`python -m` would look for modules in the current folder first, which may be another checkout. This
file has a folder of its own, since Python puts a program's folder on the path of modules.
"""

import contextlib
import fcntl
import runpy
import sys
from pathlib import Path

# `start` holds its lock by descriptor 9, which the tool's commands must not inherit.
with contextlib.suppress(OSError):
    fcntl.fcntl(9, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
own_folder = Path(__file__).absolute().parent
others = [entry for entry in sys.path if entry != str(own_folder)]
sys.path[:] = [str(own_folder.parents[2]), *others]
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
