"""Probe: everything about this process and machine that the judge looks at."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from ..project import NOBODY, Project
from . import host_probe, torch_probe
from .records import Runtime, TorchInstall


def probe_runtime(
    torch: TorchInstall | Path | str | None = None,
    *,
    gpu: bool = True,
    project: Project = NOBODY,
) -> Runtime:
    """Collect the facts, without importing torch and without initialising CUDA.

    Args:
        torch: an installation, or a folder to look for one; None for this interpreter's own.
        gpu: whether to ask for the driver and the devices.
        project: the project whose binaries are "ours"; by default no file is.
    """
    problem, install = None, torch if isinstance(torch, TorchInstall) else None
    try:
        if not isinstance(torch, TorchInstall):
            install = torch_probe.find_torch(torch or None)
    except torch_probe.TorchNotFoundError as error:
        problem = str(error)
    facts = runtime_of(install, project)
    if torch is not None and install is not None:
        # For a torch elsewhere, judge for this Python if that torch was built for it, too, else for
        # the Python that it was built for.
        tags = [re.match(r"cpython-([0-9])([0-9]+)(t?)-", f"{tag}-") for tag in install.python_tags]
        found = [((int(tag[1]), int(tag[2]), 0), tag[3] == "t") for tag in tags if tag]
        own = (*facts.python[:2], 0), facts.free_threaded
        if found and own not in found:
            python, free_threaded = found[0]
            facts = facts._replace(python=python, free_threaded=free_threaded)
    if gpu:
        from .driver_probe import probe_devices, probe_driver  # an import does not need it

        facts = facts._replace(gpu_probed=True, driver=probe_driver(), devices=probe_devices())
    return facts._replace(torch_problem=problem)


def runtime_of(
    torch: TorchInstall | None, project: Project, registered_by: str | None = None
) -> Runtime:
    """The facts of this process with this torch, without the driver and the GPU."""
    return Runtime(
        system="windows" if sys.platform == "win32" else sys.platform,
        machine=host_probe.machine(),
        python=sys.version_info[:3],
        implementation=sys.implementation.name,
        free_threaded="t" in getattr(sys, "abiflags", ""),
        libc=host_probe.libc(),
        libstdcxx=host_probe.libstdcxx(),
        torch=torch,
        registered_by=registered_by,
        package_version=project.version,
        environment=host_probe.environment(project),
        project=project,
        page_size=os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0,
        l4t=host_probe.l4t(),
    )
