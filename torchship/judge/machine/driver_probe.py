"""The NVIDIA driver and the GPUs, without creating a CUDA context.

The driver's version comes from `/proc`, and NVML lists the GPUs. `cuDriverGetVersion`,
which needs no initialisation, tells the newest CUDA that the driver serves. Nothing here
calls `cuInit`, since a child that is forked after `cuInit` cannot use CUDA.
"""

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

from ..records import Device, Driver
from ..text import printable, read_regular

_PROC = Path("/proc/driver/nvidia/version")
_RELEASE = re.compile(r"\b([0-9]{3,4}\.[0-9]{1,3}(?:\.[0-9]{1,3})?)\b")
_MAX_DEVICES = 256
_Gpu = tuple[str, str, tuple[int, int]]  # its UUID, name and compute capability


def probe_driver(proc: Path = _PROC) -> Driver | None:
    """The driver of this machine; None if no driver is visible."""
    version = None
    with suppress(OSError):
        match = _RELEASE.search(read_regular(proc, 4096).decode("utf-8", "replace"))
        version = match[1] if match else None
    cuda = None
    number = ctypes.c_int(0)
    with suppress(OSError, AttributeError):
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
        if not failed and number.value > 0:
            cuda = (number.value // 1000, number.value % 1000 // 10)
    return Driver(version=version, cuda=cuda) if version or cuda else None


def probe_devices() -> tuple[Device, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names, in its order; if unset, all GPUs by PCI
    address. The result lacks the GPUs that NVML cannot describe; it is empty if NVML fails
    altogether."""
    with suppress(OSError, AttributeError, ValueError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0:
            try:
                return visible(_nvml_devices(nvml), os.environ.get("CUDA_VISIBLE_DEVICES"))
            finally:
                nvml.nvmlShutdown()
    return ()


def _nvml_devices(nvml: ctypes.CDLL) -> list[_Gpu]:
    gpus = []
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    for index in range(min(count.value, _MAX_DEVICES)):
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue
        major = ctypes.c_int(0)
        minor = ctypes.c_int(0)
        capability = (ctypes.byref(major), ctypes.byref(minor))
        if nvml.nvmlDeviceGetCudaComputeCapability(handle, *capability) != 0:
            continue
        name = ctypes.create_string_buffer(96)
        uuid = ctypes.create_string_buffer(96)
        nvml.nvmlDeviceGetName(handle, name, 96)
        nvml.nvmlDeviceGetUUID(handle, uuid, 96)
        gpus.append((printable(uuid.value), printable(name.value), (major.value, minor.value)))
    return gpus


def visible(devices: list[_Gpu], variable: str | None) -> tuple[Device, ...]:
    """Apply the value of `CUDA_VISIBLE_DEVICES` to the GPUs.

    An entry is an index or the start of a UUID. As in the driver, the first entry that does
    not name exactly one device ends the list.
    """
    chosen = devices if variable is None else []
    for entry in (part.strip() for part in (variable or "").split(",")):
        matches = [device for device in devices if entry and device[0].startswith(entry)]
        if re.fullmatch("[0-9]{1,4}", entry):
            matches = devices[int(entry) : int(entry) + 1]
        if len(matches) != 1:
            break
        chosen.append(matches[0])
    return tuple(Device(index, name, cap) for index, (_, name, cap) in enumerate(chosen))
