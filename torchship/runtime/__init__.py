"""What a client's package needs at run time: the loader, local builds, the command line.

In comes the client's `Project`; out go its operators, registered in torch, or an error with the
cause. Begin with `loader.py`, which an import of the package runs; `command_line.py` is
`python -m PACKAGE`.
"""
