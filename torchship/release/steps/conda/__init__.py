"""Conda: out of a cell's objects comes a package, indexed in a channel, installed and run.

Begin with `packages.py`, which has the steps. They start `worker.py` in a process of its own, by
the command lines of `commands.py`. Where conda-forge is not in reach, `bootstrap.py` and
`stubs.py` make a base channel for tests; `contents.py` and `archives.py` read and write packages.
"""
