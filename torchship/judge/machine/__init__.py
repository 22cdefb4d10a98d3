"""The target, to the facts of its Python, its torch and this machine.

In comes a `Target`; out goes a `Runtime`. No torch is imported, and no CUDA is initialized.

Begin with `runtime_probe.py`: `probe_runtime` collects the facts. `torch_probe.py` finds a torch,
reads its facts and looks up symbols in its libraries. `driver_probe.py` asks for the driver and
the GPUs, which an import of a package does only if its rules need them. `mounts.py` tells whether
a file system forbids to execute its files.
"""
