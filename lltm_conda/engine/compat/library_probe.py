"""Probe: which of the libraries that a binary needs would the dynamic linker not find?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .host_probe import library_folders
from .records import BinaryRecord, TorchInstall

_LOADER_CACHE = Path("/etc/ld.so.cache")
_MAX_CACHE = 8 << 20


def missing_libraries(binary: BinaryRecord, torch: TorchInstall | None) -> tuple[str, ...]:
    """DT_NEEDED entries that are in no folder the process would look into.

    Folders of torch count, since torch has loaded its libraries before an extension is loaded.
    """
    folders = list(dict.fromkeys(_folders(binary, torch)))
    known = _cached_names()
    return tuple(
        name
        for name in binary.needed
        if name not in known and not any(os.access(folder / name, os.F_OK) for folder in folders)
    )


def _cached_names() -> frozenset[str]:
    """The file names in the cache of `ldconfig`, which holds whole paths."""
    try:
        with _LOADER_CACHE.open("rb") as file:
            texts = file.read(_MAX_CACHE).split(b"\0")
    except OSError:
        return frozenset()
    return frozenset(os.fsdecode(text.rpartition(b"/")[2]) for text in texts)


def _folders(binary: BinaryRecord, torch: TorchInstall | None) -> Iterator[Path]:
    origin = str(binary.path.parent)
    for entry in filter(None, binary.runpath.split(":")):
        yield Path(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
    if torch is not None:
        yield torch.lib_dir
        with contextlib.suppress(OSError):
            yield from sorted(torch.root.parent.glob("nvidia/*/lib"))
    yield from library_folders()
