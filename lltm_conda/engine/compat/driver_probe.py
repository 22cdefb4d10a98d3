"""Probe: the NVIDIA driver and the GPUs, without creating a CUDA context.

The driver's version comes from `/proc`, the CUDA it serves from `cuDriverGetVersion`, which needs
no initialisation, and the devices from NVML, which survives a `fork`. Nothing here calls `cuInit`.
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

from .records import Device, Driver
from .text import printable

_PROC = Path("/proc/driver/nvidia/version")
_RELEASE = re.compile(r"\b([0-9]{3,4}\.[0-9]{1,3}(?:\.[0-9]{1,3})?)\b")
_MAX_DEVICES = 256


def probe_driver(proc: Path = _PROC) -> Driver | None:
    """The driver of this machine, or None if none is visible."""
    match, cuda, value = None, None, ctypes.c_int(0)
    with suppress(OSError), proc.open("rb") as file:
        match = _RELEASE.search(file.read(4096).decode("utf-8", "replace"))
    with suppress(OSError, AttributeError):
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(value))
        if not failed and value.value > 0:
            cuda = (value.value // 1000, value.value % 1000 // 10)
    return Driver(match[1] if match else None, cuda) if match or cuda else None


def probe_devices() -> tuple[Device, ...]:
    """The GPUs that this process may see, in CUDA's PCI order; empty where there are none.

    `CUDA_VISIBLE_DEVICES` is honoured; indices are those that torch will use.
    """
    with suppress(OSError, AttributeError, ValueError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0:
            try:
                return visible(_nvml_devices(nvml), os.environ.get("CUDA_VISIBLE_DEVICES"))
            finally:
                nvml.nvmlShutdown()
    return ()


def _nvml_devices(nvml: ctypes.CDLL) -> list[tuple[str, str, tuple[int, int]]]:
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found = []
    for index in range(min(count.value, _MAX_DEVICES)):
        handle = ctypes.c_void_p()
        major, minor = ctypes.c_int(0), ctypes.c_int(0)
        name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        numbers = ctypes.byref(major), ctypes.byref(minor)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue
        if nvml.nvmlDeviceGetCudaComputeCapability(handle, *numbers) != 0:
            continue
        nvml.nvmlDeviceGetName(handle, name, 96)
        nvml.nvmlDeviceGetUUID(handle, uuid, 96)
        found.append((printable(uuid.value), printable(name.value), (major.value, minor.value)))
    return found


def visible(
    devices: list[tuple[str, str, tuple[int, int]]], wanted: str | None
) -> tuple[Device, ...]:
    """Apply `CUDA_VISIBLE_DEVICES` to (uuid, name, capability) triples, as the driver does.

    Entries are indices or prefixes of UUIDs; the list ends at the first one that names no device.
    """
    chosen = devices if wanted is None else []
    for entry in (part.strip() for part in (wanted or "").split(",")):
        matches = [device for device in devices if entry and device[0].startswith(entry)]
        if re.fullmatch("[0-9]{1,4}", entry):
            matches = devices[int(entry) : int(entry) + 1]
        if len(matches) != 1:
            break
        chosen.append(matches[0])
    return tuple(Device(index, name, cap) for index, (_, name, cap) in enumerate(chosen))
