"""Rules about CUDA: torch's build, the NVIDIA driver and the architectures of the GPUs."""

from __future__ import annotations

import re

from .. import fixes
from ..reading.binary import original_name
from ..records import (
    NOTE,
    NOWHERE,
    OK,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    Device,
    Driver,
    Finding,
    Runtime,
    TorchInstall,
    dotted,
    parse_version,
)
from ..text import some
from ..words import codes
from .rule import NEEDS_DRIVER, NEEDS_GPU, Rule, has_gpu_code

#: The oldest driver that serves each CUDA major (NVIDIA's minor-version compatibility).
DRIVER_FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
#: The newest CUDA of each driver branch, newest branch first: for drivers that do not tell it.
_CUDA_OF_DRIVER_BRANCH = {
    580: (13, 0),
    575: (12, 9),
    570: (12, 8),
    565: (12, 7),
    560: (12, 6),
    555: (12, 5),
    550: (12, 4),
    545: (12, 3),
    535: (12, 2),
    530: (12, 1),
    525: (12, 0),
    450: (11, 0),
}


def check_cuda_build(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Can this build of torch, or else the driver alone, run kernels of this CUDA major?"""
    torch = runtime.torch
    recorded = parse_version(binary.record.cuda if binary.record else None)
    if torch is None or recorded is None:
        return None
    major = recorded[0]
    if torch.root == NOWHERE:
        return Finding(
            status=UNKNOWN,
            code=codes.OTHER_CUDA,
            observed="not known",
            needed=f"a build for CUDA {major}",
            why=(
                f"torch {torch.version} is a release, whose builds are for the CPU or one CUDA each"
            ),
        )
    if torch.cuda is None:
        return _torch_without_cuda(torch, runtime)
    if torch.cuda_major is not None and torch.cuda_major >= major:
        return Finding(
            status=OK,
            observed=f"CUDA {torch.cuda}",
            needed=f"CUDA {major} or newer",
        )
    return _kernels_newer_than_torch(binary, runtime, major)


def _torch_without_cuda(torch: TorchInstall, runtime: Runtime) -> Finding:
    kind = "ROCm" if torch.hip else "XPU" if torch.xpu else "CPU-only"
    return Finding(
        status=REJECTED,
        code=codes.CUDA_TORCH_NEEDED,
        observed=f"torch {torch.version} ({kind})",
        needed="a CUDA build of torch",
        why=f"torch is a {kind} build, without CUDA tensors; it may have replaced a CUDA build",
        fix=fixes.cuda_torch(runtime.environment, torch),
    )


def _kernels_newer_than_torch(binary: BinaryRecord, runtime: Runtime, major: int) -> Finding:
    """A driver that serves the kernels' CUDA runs them beside an older torch."""
    torch_cuda = runtime.torch.cuda if runtime.torch else None
    served = driver_cuda(runtime.driver)
    observed = f"CUDA {torch_cuda}, driver for CUDA {dotted(served)}"
    requirement = f"a driver for CUDA {major}"
    if not runtime.gpu_probed:
        return Finding(
            status=UNKNOWN,
            code=codes.DRIVER_UNKNOWN,
            observed=observed,
            needed=requirement,
            why="the driver was not looked at",
        )
    if served is not None and served[0] >= major:
        return Finding(
            status=NOTE,
            code=codes.DRIVER_NEWER_THAN_TORCH,
            observed=observed,
            needed=requirement,
            why=f"torch is built for an older CUDA, but the driver serves CUDA {major}",
        )
    return Finding(
        status=REJECTED,
        code=codes.OTHER_CUDA,
        observed=observed,
        needed=requirement,
        why=(
            f"the kernels need CUDA {major}; torch has CUDA {torch_cuda}, "
            f"and no driver serves {major}"
        ),
        fix=fixes.fix_for(fixes.Wrong.TORCH, binary, runtime),
    )


def driver_cuda(driver: Driver | None) -> tuple[int, int] | None:
    """The newest CUDA that a driver serves: as it says, or from its version; None if unknown."""
    if driver is None:
        return None
    if driver.cuda is not None:
        return driver.cuda
    branch = (parse_version(driver.version) or (0,))[0]
    served = (cuda for first, cuda in _CUDA_OF_DRIVER_BRANCH.items() if branch >= first)
    return next(served, None)


def binary_cuda(binary: BinaryRecord) -> tuple[int, ...] | None:
    """The CUDA that a binary was built for; None if neither its record nor its libcudart tells."""
    recorded = binary.record.cuda if binary.record else None
    if recorded is not None:
        return parse_version(recorded)
    start = "libcudart.so."
    libraries = map(original_name, binary.needed)
    linked = (name.removeprefix(start) for name in libraries if name.startswith(start))
    return parse_version(next(linked, None))


def check_driver(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    cuda = binary_cuda(binary)
    if cuda is None:
        return None
    oldest_driver = DRIVER_FLOORS.get(cuda[0], "any")
    requirement = f"a driver for CUDA {cuda[0]} ({oldest_driver} or newer)"
    if runtime.driver is None:
        return Finding(
            status=NOTE,
            code=codes.NO_DRIVER,
            observed="no NVIDIA driver",
            needed=requirement,
            why="no GPU can be used here; code for the CPU can",
        )
    served = driver_cuda(runtime.driver)
    observed = f"{runtime.driver.version or 'unknown version'} (CUDA {dotted(served)})"
    if runtime.l4t:
        observed += f", L4T {runtime.l4t} of a Jetson"
    if served is None:
        return Finding(
            status=UNKNOWN,
            code=codes.DRIVER_UNKNOWN,
            observed=observed,
            needed=requirement,
            why="which CUDA it serves is not known",
        )
    if served[0] >= cuda[0]:
        return Finding(status=OK, observed=observed, needed=requirement)
    return Finding(
        status=REJECTED,
        code=codes.DRIVER_TOO_OLD,
        observed=observed,
        needed=requirement,
        why=f"the NVIDIA driver serves CUDA {dotted(served)}, the kernels are CUDA {cuda[0]}",
        fix=fixes.newer_driver(cuda, DRIVER_FLOORS.get(cuda[0]), binary, runtime),
    )


def runs_on(architectures: tuple[str, ...], capability: tuple[int, int]) -> str | None:
    """ "code" if machine code of these architectures runs on the GPU, "ptx" if PTX alone
    does, None if nothing does.

    Machine code runs on GPUs of the same major, from its minor on, also with the suffix `f`
    (`sm_100f`); with the suffix `a`, it runs on its own architecture alone (`sm_90a` on
    9.0). PTX of `compute_N` runs on N and everything later, unless a suffix limits it like
    machine code.
    """
    best = None
    for architecture in architectures:
        parts = re.fullmatch(r"(sm|compute)_(\d{1,3})(\d)([af]?)", architecture)
        if parts is None:
            continue
        kind, major, minor, suffix = parts.groups()
        own = (int(major), int(minor))
        if suffix == "a":
            fits = own == capability
        elif kind == "compute" and not suffix:
            fits = own <= capability
        else:
            fits = own[0] == capability[0] and own[1] <= capability[1]
        if fits and kind == "sm":
            return "code"
        if fits:
            best = "ptx"
    return best


def check_gpu_architecture(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does the binary hold code for every GPU? If it runs on some of them, it is accepted."""
    if not binary.cuda_archs or not runtime.devices:
        return None
    cuda = binary_cuda(binary)
    served = driver_cuda(runtime.driver)
    is_driver_older = cuda is not None and served is not None and served < cuda[:2]
    refused: list[tuple[Device, str | None]] = []
    for device in runtime.devices:
        code = runs_on(binary.cuda_archs, device.capability)
        if code is None or (code == "ptx" and is_driver_older):
            refused.append((device, code))
    observed = some([f"{d.name} ({dotted(d.capability)})" for d in runtime.devices], 8)
    requirement = ", ".join(binary.cuda_archs)
    if not refused:
        return Finding(status=OK, observed=observed, needed=requirement)
    device, code = refused[0]
    label = f"{device.name} (compute capability {dotted(device.capability)})"
    if code == "ptx":
        why = (
            f"the {label} could run only PTX of {binary.name}, which needs CUDA {dotted(cuda)}, "
            f"but the driver serves CUDA {dotted(served)}"
        )
        floor = DRIVER_FLOORS.get(cuda[0]) if cuda else None
        fix = fixes.newer_driver(cuda, floor, binary, runtime)
        code = codes.DRIVER_TOO_OLD
    else:
        why = f"{binary.name} holds no code for the {label}"
        fix = fixes.build_cuda(binary, runtime, [device.capability for device, _ in refused])
        code = codes.GPU_ARCHITECTURE
    return Finding(
        status=REJECTED if len(refused) == len(runtime.devices) else NOTE,
        code=code,
        observed=observed,
        needed=requirement,
        why=why,
        fix=fix,
    )


CUDA_BUILD = Rule(
    rank=500,
    dimension="CUDA build of torch",
    codes=(
        codes.OTHER_CUDA,
        codes.CUDA_TORCH_NEEDED,
        codes.DRIVER_UNKNOWN,
        codes.DRIVER_NEWER_THAN_TORCH,
    ),
    check=check_cuda_build,
)
DRIVER = Rule(
    rank=510,
    dimension="driver",
    codes=(codes.NO_DRIVER, codes.DRIVER_UNKNOWN, codes.DRIVER_TOO_OLD),
    check=check_driver,
    needs=(NEEDS_DRIVER,),
    concerns=lambda binary: binary_cuda(binary) is not None,
)
GPU_ARCHITECTURE = Rule(
    rank=520,
    dimension="GPU architecture",
    codes=(codes.GPU_ARCHITECTURE, codes.DRIVER_TOO_OLD),
    check=check_gpu_architecture,
    needs=(NEEDS_GPU,),
    concerns=has_gpu_code,
)
