"""Starts a module of the release tool: release_tool.py MODULE [ARGUMENT ...].

`python -m` would look for modules in the folder that it is started in first, and find another
checkout's there.
"""

import contextlib
import os
import runpy
import sys

# The lock that build_all.sh holds for this process; its commands must not inherit it.
with contextlib.suppress(OSError):
    os.set_inheritable(9, False)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
