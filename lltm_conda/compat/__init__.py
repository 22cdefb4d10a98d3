"""Will this shared object work in this Python, with this torch, on this machine?

Answered without loading anything, by the standard library alone:
`judge_file(path, probe_runtime())` gives a `Verdict` for any torch extension; see docs/compat.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .binary import read_binary
    from .inspect import judge_file
    from .judgement import judge
    from .records import (
        BinaryRecord,
        BuildRecord,
        Device,
        Driver,
        Environment,
        Finding,
        GlueName,
        KernelsName,
        NameFormatError,
        Runtime,
        TorchInstall,
        VariantName,
        Verdict,
    )
    from .runtime_probe import probe_runtime
    from .selection import Selection, select
    from .torch_probe import TorchNotFoundError, find_torch

# Where each public name lives. Resolved on first use: `import lltm_conda` needs only some modules.
_HOMES = {
    "BinaryRecord": "records",
    "BuildRecord": "records",
    "Device": "records",
    "Driver": "records",
    "Environment": "records",
    "Finding": "records",
    "GlueName": "records",
    "KernelsName": "records",
    "NameFormatError": "records",
    "Runtime": "records",
    "Selection": "selection",
    "TorchInstall": "records",
    "TorchNotFoundError": "torch_probe",
    "VariantName": "records",
    "Verdict": "records",
    "find_torch": "torch_probe",
    "judge": "judgement",
    "judge_file": "inspect",
    "probe_runtime": "runtime_probe",
    "read_binary": "binary",
    "select": "selection",
}

__all__ = [
    "BinaryRecord",
    "BuildRecord",
    "Device",
    "Driver",
    "Environment",
    "Finding",
    "GlueName",
    "KernelsName",
    "NameFormatError",
    "Runtime",
    "Selection",
    "TorchInstall",
    "TorchNotFoundError",
    "VariantName",
    "Verdict",
    "find_torch",
    "judge",
    "judge_file",
    "probe_runtime",
    "read_binary",
    "select",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
