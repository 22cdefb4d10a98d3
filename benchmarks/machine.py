"""Describes the machine, the versions and the commit for a result file."""

import hashlib
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from .schema import Machine, Software

ROOT = Path(__file__).parents[1]


def describe_machine(device: str) -> Machine:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    machine = Machine(
        cpu=next(models, platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        load_average=round(os.getloadavg()[0], 2),
        kernel=f"{platform.system()} {platform.release().split('-')[0]}",
    )
    if device != "cuda":
        return machine
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return replace(
        machine,
        gpu=gpu.name,
        gpu_compute_capability=f"{gpu.major}.{gpu.minor}",
        gpu_multiprocessors=gpu.multi_processor_count,
        gpu_memory_bytes=gpu.total_memory,
        driver=_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    )


def describe_software() -> Software:
    package = sys.modules.get("lltm_conda")
    loaded = package.loader.loaded() if package else None
    paths = filter(None, loaded.paths) if loaded else ()
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    commit = _output("git", "-C", str(ROOT), *describe)  # with `-dirty` if tracked files differ
    return Software(
        python=platform.python_version(),
        torch=torch.__version__,
        torch_cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        commit=commit or os.environ.get("LLTM_BENCHMARK_COMMIT", "unknown"),
        lltm=package.__version__ if package and loaded else None,
        door=loaded.glue.name if loaded else None,
        binaries={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths},
    )


def _output(*command: str) -> str | None:
    """The first line that the command prints; None if the command fails or prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0] or None
