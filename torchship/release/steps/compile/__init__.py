"""Compiles: out of sources, a torch and a compiler come shared objects that passed their audit.

In come the environments with torch (`environments.py`) and the CUDA toolkits (`toolchains.py`); out
come glue and kernels (`objects.py`), which `audit.py` checks before anything packs them.
`emulation.py` is the one place of what a run for another platform needs: a cross compiler, and a
Python under qemu. Begin with `objects.py`.
"""
