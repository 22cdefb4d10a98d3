"""Probe: a Python module that the C code of a native module imports, and that is missing here.

Only the texts of the file are read. They are a hint and no proof: the code may import a module
later, or go on without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ..judge import interpreter
from ..judge.elf import Elf, ElfError
from ..judge.records import BinaryRecord, TorchInstall
from ..judge.text import is_file
from . import pythons
from .imports import surely_imported

_MAX_RODATA = 64 << 20
_MAX_HELPERS = 50
#: What code in C imports a module with.
_IMPORTING = ("PyImport_Import", "PyRun_")
#: The names of sources end so, which messages of `assert` hold.
_IS_NO_SOURCE = rb"(?!\.(?:c|cc|cpp|cxx|h|hpp|py|pyx|pxd|so)\0)"


def absent_imports(binary: BinaryRecord, torch: TorchInstall | None) -> tuple[str, ...]:
    """`("import NAME",)` for a module that loading the binary seems to import, and that was not
    found: NumPy, or a module that this Python's build of the standard library lacks; else ()."""
    if not binary.modules:
        return ()
    texts = _texts(binary.path)
    if b"multiarray failed to import" in texts and not _has_numpy(binary, torch):
        return ("import numpy",)
    if not any(name.startswith(_IMPORTING) for name in binary.python_symbols):
        return ()
    missing = [name for name in pythons.missing_modules() if name not in binary.modules]
    named = next((name for name in missing if _is_named(name, texts)), None)
    name = named or next(_imported_by_helpers(binary.path, texts, missing), None)
    return (f"import {name}",) if name else ()


def _texts(path: Path) -> bytes:
    """The constants of a file, which end in a zero byte each; empty if they cannot be read."""
    with suppress(ElfError, OSError), Elf(path) as elf:
        start, size = elf.section(".rodata") or (0, 0)
        return elf.read(start, min(size, _MAX_RODATA))
    return b""


def _has_numpy(binary: BinaryRecord, torch: TorchInstall | None) -> bool:
    places = [*binary.path.absolute().parents, *map(Path, filter(None, interpreter.search_path()))]
    places += [torch.root.parent] if torch else []
    return any(os.access(place / "numpy" / "__init__.py", os.F_OK) for place in places)


def _is_named(module: str, texts: bytes) -> bool:
    """Whether a text is the name of a module or of one below it, or ends in the name: linkers
    keep a text that is the end of another one only once."""
    name = module.encode()
    if name not in texts:  # quicker than the pattern
        return False
    pattern = rb"(?<![\w./-])" + re.escape(name) + _IS_NO_SOURCE + rb"(?:\.[A-Za-z_]\w*)*\0"
    return re.search(pattern, texts) is not None


def _imported_by_helpers(path: Path, texts: bytes, missing: Sequence[str]) -> Iterator[str]:
    """The missing modules that are surely imported by modules of the package of a binary, which
    the binary names: `PIL/_imagingtk` imports `PIL._tkinter_finder`, which imports `tkinter`."""
    if not missing:
        return
    folders = [path.absolute().parent, *path.absolute().parent.parents]
    inside = [folder for folder in folders if is_file(folder / "__init__.py")]
    if not inside:
        return
    package = inside[-1]
    pattern = rb"(?<![\w./-])" + re.escape(os.fsencode(package.name)) + rb"((?:\.[A-Za-z_]\w*)+)\0"
    matches = islice(re.finditer(pattern, texts), _MAX_HELPERS)
    for below in dict.fromkeys(match[1].decode("ascii", "replace") for match in matches):
        yield from surely_imported(f"{package.name}{below}", package.parent, missing)
