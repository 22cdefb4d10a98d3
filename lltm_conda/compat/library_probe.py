"""Probe: which of the libraries that a binary needs would the dynamic linker not find?"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from .records import BinaryRecord, TorchInstall

_LOADER_CACHE = Path("/etc/ld.so.cache")
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_MULTIARCH = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
_MAX_CACHE = 8 << 20


def missing_libraries(binary: BinaryRecord, torch: TorchInstall | None) -> tuple[str, ...]:
    """DT_NEEDED entries that are in no folder the process would look into.

    Folders of torch count, since torch has loaded its libraries before an extension is loaded.
    """
    folders = list(_folders(binary, torch))
    known = _loader_cache()
    return tuple(
        name
        for name in binary.needed
        if b"\0" + os.fsencode(name) + b"\0" not in known
        and not any(_exists(folder / name) for folder in folders)
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _loader_cache() -> bytes:
    try:
        with _LOADER_CACHE.open("rb") as file:
            return file.read(_MAX_CACHE)
    except OSError:
        return b""


def _folders(binary: BinaryRecord, torch: TorchInstall | None) -> Iterator[Path]:
    for entry in binary.runpath.split(":"):
        origin = str(binary.path.parent)
        if entry:
            yield Path(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
    if torch is not None:
        yield torch.lib_dir
        with contextlib.suppress(OSError):
            yield from sorted(torch.root.parent.glob("nvidia/*/lib"))
    for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if entry:
            yield Path(entry)
    yield Path(sys.prefix) / "lib"
    yield Path(sys.base_prefix) / "lib"
    for name in (*_FOLDERS, *_MULTIARCH):
        yield Path(name)
