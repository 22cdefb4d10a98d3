"""Finds the cause in the loader's error, and compares it with the cause that a verdict names."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from measurements.foreign_table.tasks import Outcome

#: Patterns of errors and their causes. `real_cause` tries _TORCH_SYMBOL, then these in order.
_RULES = (
    (r"invalid ELF header|file too short|cannot read file data|ELF load command", "file"),
    (r"cannot dynamically load|only ET_DYN|object file has no dynamic section", "file"),
    (r"wrong ELF class|ELF file OS ABI invalid", "platform"),
    (r"No module named|failed to import", "python"),
    (r"module was compiled for Python|does not define module export", "python"),
    (r"undefined symbol: _?Py|compiled against|_ARRAY_API not found", "python"),
    (r"version `(GLIBC|GLIBCXX|CXXABI)_", "system"),
    (r"lib(torch_cuda|c10_cuda|torch_hip|c10_hip|torch_xpu|c10_xpu)\w*\.so.*cannot open", "build"),
    (r"lib(cuda|nvidia-ml|nvcuvid)\.so\.1: cannot open", "driver"),
    (r"undefined symbol: (cu[A-Z]|cuda[A-Z]|nvml|__cuda|hip[A-Z])", "cuda"),
    (r"lib(cu[a-z]+|nv[A-Za-z]+|nccl)[\w-]*\.so[.\d]*: cannot open", "cuda"),
    (r"cannot open shared object file", "library"),
    (r"version `\S+' not found", "library"),
)
_TORCH_SYMBOL = r"(aoti_torch_|torch_|THP|_Z\w*?(2at|3c10|5torch|6caffe2))"

#: The causes of a verdict's dimensions; a dimension not listed has the name of its cause. For
#: "libraries", `right_cause` derives the cause from the first missing library.
_DIMENSIONS = {
    **dict.fromkeys(("torch version", "C++ ABI", "torch symbols", "class layout"), "torch"),
    **dict.fromkeys(("glibc", "libstdc++"), "system"),
    "CUDA build of torch": "build",
    "symbols": "library",
}


class Claim(NamedTuple):
    """The dimension by which a verdict refuses an object, and what the checker observed there."""

    dimension: str
    observed: str

    @property
    def libraries(self) -> list[str]:
        """The libraries that the verdict calls missing."""
        if self.dimension != "libraries":
            return []
        return re.findall(r"[\w.+-]+\.so[.\w]*", self.observed)


def real_cause(outcome: str, error: str) -> str | None:
    """The cause of an outcome; None if the object works."""
    if outcome == "works":
        return None
    if outcome != "load error":
        return "torch"  # a crash, a wrong result, a failed call
    if re.search("undefined symbol: " + _TORCH_SYMBOL, error):
        return "torch"
    for pattern, cause in _RULES:
        if re.search(pattern, error):
            return cause
    return "library" if "undefined symbol" in error else "torch"


def is_right_cause(
    claim: Claim, outcome: Outcome, truth: str | None, lacks: Collection[str]
) -> bool:
    """Whether the cause that a verdict names is a true cause of the failure.

    If the cause was known before loading, `truth` is this cause and decides alone. Otherwise
    the cause in the loader's error is true ("file" and "platform" count as one cause). The
    error names only one cause, so others may be true, too: a missing library, if the loader
    could not open the first library that the verdict names (`absent`); torch or Python, if it
    does not export a symbol of its own that the object needs (`lacks`).
    """
    libraries = claim.libraries
    real = real_cause(outcome.outcome, outcome.error)
    named: str | None = _DIMENSIONS.get(claim.dimension, claim.dimension)
    if named == "libraries":
        named = real_cause("load error", f"{[*libraries, '?'][0]}: cannot open shared object file")
    if truth is not None:
        return named == truth
    if real == named or {real, named} == {"file", "platform"}:
        return True
    if named == "torch":
        return any(re.match(_TORCH_SYMBOL, symbol) for symbol in lacks)
    if named == "python":
        return any(symbol.startswith(("Py", "_Py")) for symbol in lacks)
    return bool(libraries) and libraries[0] in outcome.absent


def without_folders(message: str) -> str:
    """The message without the folders in its absolute paths, cut to 400 characters."""
    return re.sub(r"(?<![\w.])/\S*/(?=[^/\s]+)", "", message)[:400]
