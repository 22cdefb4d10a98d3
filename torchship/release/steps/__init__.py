"""The steps: what a run does for a cell or a tool, one class for each.

In come the outputs of the steps before; out come files, and what the manifest says of them. A step
keeps together when it is planned, its name, what it needs, its typed outputs and its part of the
manifest. Begin with `step.py`, which says what a step is; then, in the order of a run:

compile  toolchains, environments with torch, objects, and their audit
pack     the source distribution and the wheels
conda    packages, the channel they are built beside, and their installation
verify   wheels that are installed and run
tools    pure Python distributions that go out with the binaries
"""
