"""The machine, the versions, the commit: what a figure is worth nothing without."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import torch

from .schema import Machine, Software

ROOT = Path(__file__).parents[1]


def describe_machine(device: str) -> Machine:
    """The processor, its load as the run starts, and the GPU where it is the device."""
    machine = Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        load_average=round(os.getloadavg()[0], 2),
        kernel=f"{platform.system()} {platform.release().split('-')[0]}",
    )
    if device != "cuda":
        return machine
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return replace(
        machine,
        gpu=properties.name,
        gpu_compute_capability=f"{properties.major}.{properties.minor}",
        gpu_multiprocessors=properties.multi_processor_count,
        gpu_memory_bytes=properties.total_memory,
        driver=_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    )


def describe_software() -> Software:
    """Versions, the commit, and the binaries of ours that this process has loaded."""
    lltm, binaries = None, loaded_binaries()
    if binaries:
        import lltm_conda

        lltm = lltm_conda.__version__
    return Software(
        python=platform.python_version(),
        torch=torch.__version__,
        torch_cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        commit=commit(),
        lltm=lltm,
        door=door(binaries),
        binaries=binaries,
    )


def loaded_binaries() -> dict[str, str]:
    """File name to SHA-256 of the glue and kernels mapped into this process.

    Read from the process's memory map: it shows what is there, whoever loaded it.
    """
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    paths = {Path(parts[5]) for line in lines if len(parts := line.split(maxsplit=5)) == 6}
    ours = [p for p in paths if p.suffix == ".so" and p.name.startswith(("glue-", "kernels-"))]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(ours)}


def door(binaries: dict[str, str]) -> str | None:
    """The glue's name, `stable210` or `aten29-abi1`: the door that was measured."""
    glue = [name.removeprefix("glue-").removesuffix(".so") for name in binaries if "glue" in name]
    return "+".join(glue) or None


def commit() -> str:
    """The commit measured, `-dirty` where tracked files differ from it.

    A copy of the tree without git's folder names its commit in LLTM_BENCHMARK_COMMIT.
    """
    head = _output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    if head is None:
        return os.environ.get("LLTM_BENCHMARK_COMMIT", "unknown")
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{head}-dirty" if changed else head


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if lines else None
