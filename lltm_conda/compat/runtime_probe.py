"""Probe: everything about this process and machine that the judge looks at."""

from __future__ import annotations

import sys
from pathlib import Path

from . import driver_probe, host_probe, torch_probe
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
    problem = None
    install: TorchInstall | None = None
    if isinstance(torch, TorchInstall):
        install = torch
    else:
        try:
            install = torch_probe.find_torch(Path(torch) if torch else None)
        except torch_probe.TorchNotFoundError as error:
            problem = str(error)
    return Runtime(
        system=host_probe.system(),
        machine=host_probe.machine(),
        python=sys.version_info[:3],
        implementation=sys.implementation.name,
        free_threaded=host_probe.free_threaded(),
        libc=host_probe.libc(),
        libstdcxx=host_probe.libstdcxx(),
        torch=install,
        torch_problem=problem,
        gpu_probed=gpu,
        driver=driver_probe.probe_driver() if gpu else None,
        devices=driver_probe.probe_devices() if gpu else (),
        registered_by=registered_by,
        package_version=package_version,
        environment=host_probe.environment(Path(__file__).parents[1], package_version),
    )
