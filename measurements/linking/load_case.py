"""Judges and then really loads the case in a folder, and prints each as a line of JSON.

    python load_case.py FOLDER

PYTHONPATH names the folder that holds the package torchship. The process loads what the stand-in
for `import torch` loads, then the object; nothing of the checker loads anything. If the dynamic
linker kills the process, the last line is missing.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchship.judge.linking.process import Opening


def judge(folder: Path) -> dict[str, object]:
    from torchship.judge.linking import after_torch
    from torchship.judge.linking.search import settings_here
    from torchship.judge.machine.torch_probe import release
    from torchship.judge.reading.binary import read_binary
    from torchship.judge.target import Target

    target = Target()
    torch = release("2.13.0", (2, 13))._replace(root=folder / "torch")
    program = Path(sys.executable)
    imported = after_torch.import_torch(target, torch.root, settings_here(), program)
    binary = read_binary(folder / "x.so")
    opening = after_torch.link(target, binary, torch).opening
    told = imported.failure or opening  # a verdict on torch is the one that counts
    return {
        "torch": imported.failure is None,
        "loads": opening.succeeds,
        "names": [*names_of(told)],
        "misses_version": bool(told.versions),
    }


def names_of(failure: Opening) -> Iterator[str]:
    """What the checker names of an object that does not load."""
    yield from failure.missing
    for refusal in failure.refused:
        yield from (refusal.path.name, refusal.why)
    for missing in failure.versions:
        yield missing.version
    for path in failure.forbidding:
        yield path.name
    for symbols in failure.symbols.values():
        yield from symbols
    if failure.brought_in is not None:
        yield failure.brought_in.file.name


def load(folder: Path) -> dict[str, object]:
    outcome: dict[str, object] = {"torch": True, "loads": True, "error": ""}
    deps = folder / "torch" / "lib" / "libtorch_global_deps.so"
    module = folder / "torch" / "_C.so"
    try:
        if deps.exists():
            ctypes.CDLL(str(deps), mode=ctypes.RTLD_GLOBAL)
        if module.exists():
            ctypes.CDLL(str(module))
        print(json.dumps({"torch": True, "loads": False, "error": "killed"}), flush=True)
    except OSError as error:
        return {"torch": False, "loads": False, "error": str(error)}
    try:
        ctypes.CDLL(str(folder / "x.so"))
    except OSError as error:
        outcome |= {"loads": False, "error": str(error)}
    return outcome


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(json.dumps(judge(place)), flush=True)
    print(json.dumps(load(place)), flush=True)
    os._exit(0)
