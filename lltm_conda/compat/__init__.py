"""Will this shared object work in this Python, with this torch, on this machine?

Answered without loading anything, by the standard library alone:
`judge_file(path, probe_runtime())` gives a `Verdict` for any torch extension; see docs/compat.md.
"""

from __future__ import annotations

from .binary import read_binary
from .inspect import judge_file
from .judge import judge
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
from .select import Selection, select
from .torch_probe import TorchNotFoundError, find_torch

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
