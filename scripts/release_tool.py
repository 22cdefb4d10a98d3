"""Starts a module of torchship: release_tool.py MODULE [ARGUMENT ...].

`python -m` would look for modules in the current folder first, which may be another checkout.
"""

import contextlib
import fcntl
import runpy
import sys

# build_all.sh holds its lock by descriptor 9, which the tool's commands must not inherit.
with contextlib.suppress(OSError):
    fcntl.fcntl(9, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
