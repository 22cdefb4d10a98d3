"""Probe: everything about this process and machine that the judge looks at."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from . import host_probe, torch_probe
from .records import Runtime, TorchInstall


def probe_runtime(
    torch: TorchInstall | Path | str | None = None,
    *,
    gpu: bool = True,
    package_version: str = "",
    registered_by: str | None = None,
) -> Runtime:
    """Collect the facts, without importing torch and without initialising CUDA.

    Args:
        torch: an installation, or where to look for one; None for this interpreter's own.
        gpu: whether to ask for the driver and the devices.
        package_version: the version of the Python files that binaries must have; "" for none.
        registered_by: who has registered the ops already.
    """
    from .driver_probe import probe_devices, probe_driver

    problem = None
    install: TorchInstall | None = None
    if isinstance(torch, TorchInstall):
        install = torch
    else:
        try:
            install = torch_probe.find_torch(Path(torch) if torch else None)
        except torch_probe.TorchNotFoundError as error:
            problem = str(error)
    python, free_threaded = sys.version_info[:3], host_probe.free_threaded()
    if torch is not None and install is not None:
        python, free_threaded = _python_of(install, python, free_threaded)
    return Runtime(
        system=host_probe.system(),
        machine=host_probe.machine(),
        python=python,
        implementation=sys.implementation.name,
        free_threaded=free_threaded,
        libc=host_probe.libc(),
        libstdcxx=host_probe.libstdcxx(),
        torch=install,
        torch_problem=problem,
        gpu_probed=gpu,
        driver=probe_driver() if gpu else None,
        devices=probe_devices() if gpu else (),
        registered_by=registered_by,
        package_version=package_version,
        environment=host_probe.environment(Path(__file__).parents[1], package_version),
    )


def _python_of(
    torch: TorchInstall, own: tuple[int, int, int], own_free: bool
) -> tuple[tuple[int, int, int], bool]:
    """The Python of a torch elsewhere: this one if it fits, else the one it was built for."""
    tags = [re.match(r"cpython-([0-9])([0-9]+)(t?)-", f"{tag}-") for tag in torch.python_tags]
    found = [((int(tag[1]), int(tag[2]), 0), tag[3] == "t") for tag in tags if tag]
    if not found or any(version[:2] == own[:2] and free == own_free for version, free in found):
        return own, own_free
    return found[0]


def runtime_of(
    torch: TorchInstall, package: Path, package_version: str, registered_by: str | None
) -> Runtime:
    """The facts of this process with the torch that it has imported; the GPU is not asked."""
    return Runtime(
        system=host_probe.system(),
        machine=host_probe.machine(),
        python=sys.version_info[:3],
        implementation=sys.implementation.name,
        free_threaded=host_probe.free_threaded(),
        libc=host_probe.libc(),
        libstdcxx=host_probe.libstdcxx(),
        torch=torch,
        registered_by=registered_by,
        package_version=package_version,
        environment=host_probe.environment(package, package_version),
    )
