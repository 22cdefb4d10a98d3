"""Dimensions of CUDA: the build of torch, the driver, the GPU architectures."""

from __future__ import annotations

import re

from . import faults, fixes
from .records import NOTE, NOWHERE, BinaryRecord, Driver, Finding, Runtime, dotted, parse_version
from .text import some

#: The first driver branch of each CUDA release, newest first, for a driver that does not say.
_DRIVER_CUDA = {580: (13, 0), 575: (12, 9), 570: (12, 8), 565: (12, 7), 560: (12, 6), 555: (12, 5)}
_DRIVER_CUDA |= {550: (12, 4), 545: (12, 3), 535: (12, 2), 530: (12, 1), 525: (12, 0), 450: (11, 0)}


def cuda_build(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch, cuda = runtime.torch, parse_version(binary.record.cuda if binary.record else None)
    if torch is None or cuda is None:
        return None
    dimension, major = "CUDA build of torch", cuda[0]
    if torch.root == NOWHERE:
        why = f"torch {torch.version} is a release, whose builds are for the CPU or one CUDA each"
        return Finding.unknown(dimension, "not known", f"a build for CUDA {major}", why)
    if torch.cuda is None:
        kind = "ROCm" if torch.hip else "XPU" if torch.xpu else "CPU-only"
        observed, needed = f"torch {torch.version} ({kind})", "a CUDA build of torch"
        why = (
            f"torch is a {kind} build, so there are no CUDA tensors; if there were before, a "
            f"{kind} torch was swapped in"
        )
        fix = fixes.cuda_torch(runtime.environment, torch)
        swapped = faults.CPU_TORCH_SWAPPED_IN
        return Finding.rejected(dimension, observed, needed, why, fix, swapped)
    if torch.cuda_major is not None and torch.cuda_major >= major:
        return Finding.ok(dimension, f"CUDA {torch.cuda}", f"CUDA {major} or newer")
    speaks, needed = driver_cuda(runtime.driver), f"a driver for CUDA {major}"
    observed, fault = f"CUDA {torch.cuda}, driver for CUDA {dotted(speaks)}", faults.CUDA_MAJOR
    if not runtime.gpu_probed:
        why = "the driver was not looked at"
        return Finding.unknown(dimension, observed, needed, why, "", fault)
    if speaks is not None and speaks[0] >= major:
        why = "torch is older, the driver is new enough"
        return Finding.note(dimension, observed, needed, why)
    why = (
        f"the kernels need CUDA {major}, torch is built for CUDA {torch.cuda}, and no driver for "
        f"CUDA {major} is here"
    )
    fix = fixes.fit_torch(runtime, binary)
    return Finding.rejected(dimension, observed, needed, why, fix, fault)


def driver_cuda(driver: Driver | None) -> tuple[int, int] | None:
    """The newest CUDA that a driver serves: as it says, else by its version; None if unknown."""
    if driver is None:
        return None
    if driver.cuda is not None:
        return driver.cuda
    branch = (parse_version(driver.version) or (0,))[0]
    return next((cuda for first, cuda in _DRIVER_CUDA.items() if branch >= first), None)


def binary_cuda(binary: BinaryRecord) -> tuple[int, ...] | None:
    """The CUDA that a binary was built for; None if it needs none."""
    if binary.record is not None and binary.record.cuda is not None:
        return parse_version(binary.record.cuda)
    runtimes = [name for name in binary.needed if name.startswith("libcudart.so.")]
    return parse_version(runtimes[0].removeprefix("libcudart.so.")) if runtimes else None


def driver(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    cuda = binary_cuda(binary)
    if cuda is None or not runtime.gpu_probed:
        return None
    needed = f"a driver for CUDA {cuda[0]} ({fixes.DRIVER_FLOORS.get(cuda[0], 'any')} or newer)"
    if runtime.driver is None:
        why = "no GPU can be used here; the CPU can"
        return Finding.note("driver", "no NVIDIA driver", needed, why)
    speaks = driver_cuda(runtime.driver)
    observed = f"{runtime.driver.version or 'unknown version'} (CUDA {dotted(speaks)})"
    observed += f", L4T {runtime.l4t} of a Jetson" if runtime.l4t else ""
    if speaks is None:
        return Finding.unknown("driver", observed, needed, "which CUDA it serves is not known")
    if speaks[0] >= cuda[0]:
        return Finding.ok("driver", observed, needed)
    why = f"the NVIDIA driver serves CUDA {dotted(speaks)}, the kernels are CUDA {cuda[0]}"
    fix = fixes.newer_driver(cuda, binary, runtime)
    return Finding.rejected("driver", observed, needed, why, fix, faults.DRIVER)


def runs_on(archs: tuple[str, ...], capability: tuple[int, int]) -> str | None:
    """ "code" when an architecture's machine code runs on the GPU, "ptx" when only PTX does.

    Machine code runs on GPUs of its major from its minor on; `sm_90a` runs on 9.0 alone; `sm_100f`
    runs within its family (same major, from its minor on). PTX of `compute_N` runs on N and
    everything later; the suffixes `a` and `f` limit it in the same way.
    """
    best = None
    for arch in archs:
        named = re.fullmatch(r"(sm|compute)_(\d{1,3})(\d)([af]?)", arch)
        if named is None:
            continue
        kind, letter, own = named[1], named[4], (int(named[2]), int(named[3]))
        if letter == "a":
            fits = own == capability
        elif kind == "compute" and not letter:
            fits = own <= capability
        else:
            fits = own[0] == capability[0] and own[1] <= capability[1]
        if fits and kind == "sm":
            return "code"
        best = "ptx" if fits else best
    return best


def gpu_architecture(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    if not binary.cuda_archs or not runtime.devices:
        return None
    cuda, speaks = binary_cuda(binary), driver_cuda(runtime.driver)
    old_driver = cuda is not None and speaks is not None and speaks < cuda[:2]
    ways = [(device, runs_on(binary.cuda_archs, device.capability)) for device in runtime.devices]
    refused = [(d, how) for d, how in ways if how is None or (how == "ptx" and old_driver)]
    archs = ", ".join(binary.cuda_archs)
    named = some([f"{d.name} ({dotted(d.capability)})" for d in runtime.devices], 8)
    if not refused:
        return Finding.ok("GPU architecture", named, archs)
    device, how = refused[0]
    label = f"{device.name} (compute capability {dotted(device.capability)})"
    if how == "ptx":
        fault, fix = faults.DRIVER, fixes.newer_driver(cuda, binary, runtime)
        why = (
            f"on the {label} only the PTX of {binary.name} could run, and the driver "
            f"(CUDA {dotted(speaks)}) is older than the PTX (CUDA {dotted(cuda)})"
        )
    else:
        fix = fixes.build_cuda(binary, runtime, [d.capability for d, _ in refused])
        fault, why = faults.GPU_ARCHITECTURE, f"{binary.name} holds no code for the {label}"
    found = Finding.rejected("GPU architecture", named, archs, why, fix, fault)
    return found if len(refused) == len(ways) else found._replace(status=NOTE)
