"""What the real loader's error means, by rules, and whether a verdict names that cause. Pure."""

import re
from collections.abc import Collection
from typing import Any

#: A rule is (a pattern of the error's text, the cause). The first match decides.
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

#: The cause that each dimension of a verdict names; "libraries" is handled apart.
_DIMENSIONS = {
    **dict.fromkeys(("torch version", "C++ ABI", "torch symbols", "class layout"), "torch"),
    **dict.fromkeys(("glibc", "libstdc++"), "system"),
    "CUDA build of torch": "build",
    "python": "python",
    "file": "file",
    "platform": "platform",
    "symbols": "library",
    "torch": "torch",
}


def real_cause(outcome: str, error: str) -> str | None:
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


def is_torch(symbol: str) -> bool:
    return re.match(_TORCH_SYMBOL, symbol) is not None


def named_cause(dimension: str, observed: str) -> str:
    if dimension != "libraries":
        return _DIMENSIONS.get(dimension, dimension)
    first = [*claimed_libraries(observed), "?"][0]
    return real_cause("load error", f"{first}: cannot open shared object file") or ""


def right_cause(cell: dict[str, Any], truth: str | None, lacks: Collection[str]) -> bool:
    """Whether the cause that a verdict names is the real one, or another true one.

    The loader names only one of several causes. Two facts prove others: the libraries that the
    loader could not open by name (`absent`), and the symbols that neither torch nor Python exports
    by `nm` (`lacks`). `truth` is the cause for which the file was chosen, if any.
    """
    real, named = real_cause(cell["outcome"], cell["error"]), cell["named"]
    if truth is not None:
        return bool(named == truth)
    if real == named or {real, named} == {"file", "platform"}:
        return True
    if named == "torch":
        return any(map(is_torch, lacks))
    if named == "python":
        return any(symbol.startswith(("Py", "_Py")) for symbol in lacks)
    claimed = claimed_libraries(cell["observed"]) if cell["dimension"] == "libraries" else []
    return bool(claimed) and claimed[0] in cell.get("absent", ())


def claimed_libraries(observed: str) -> list[str]:
    return re.findall(r"[\w.+-]+\.so[.\w]*", observed)
