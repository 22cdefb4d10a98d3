"""Why the import of an installed package fails although its binaries load."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ..judge import codes, cures, faults, fixes, interpreter
from ..judge.binary import read_binary
from ..judge.records import REJECTED, BinaryRecord, Finding, Runtime, dotted, parse_version
from ..judge.text import is_file, printable, read_regular
from .environment.owner import find_owner

_MAX_SOURCE = 1 << 18
_MAX_SOURCES = 20
#: The Python files in which packages look at the CUDA of their binaries and of torch.
_LOOKS_AT_CUDA = re.compile(r"[^/]+/(?:\w*extension\w*/\w+|\w*extension\w*)\.py")
#: What they say then: torchvision compares major versions, torchaudio minor ones, too.
_REFUSAL = re.compile(r"compiled with different CUDA (major )?versions")
_VERSION_FILES = ("version.py", "_version.py")
_CUDA_OF_VERSION = re.compile(r"""__version__\s*(?::\s*str\s*)?=\s*["'][^"'+]+\+cu(\d{2,4})["']""")
#: This Python is the first that PYTHONSAFEPATH keeps from importing out of the working folder.
_FIRST_WITH_SAFE_PATH = (3, 11)


def find_shadow(
    name: str, *, site: Path, objects: Sequence[str], tops: Sequence[str], runtime: Runtime
) -> Finding | None:
    """Does a source folder without binaries hide an installed package?

    `objects` are the shared objects of the package `name` in the folder `site`, and `tops` the
    Python packages that hold them. Python looks first in the working folder, for `-c`, for `-m`
    and for scripts in it.
    """
    for folder, is_working_folder in _folders_before(site):
        for top in tops:
            shadow = _imported_from(folder, top)
            if shadow is None or _has_all(folder, top, objects) or _is_same(shadow, site / top):
                continue
            place = printable(shadow)
            return Finding(
                dimension="package",
                status=REJECTED,
                code=codes.SOURCE_FOLDER,
                observed=f"{place}, without the binaries",
                needed=f"the installed package {printable(site / top)}",
                why=f"{place} hides the installed {name}, and lacks its binaries: Python imports "
                + ("it for programs of this folder" if is_working_folder else "it"),
                fix=_leave_out(folder, runtime, is_working_folder=is_working_folder),
                fault=faults.PACKAGE_FILES,
            )
    return None


def _folders_before(site: Path) -> Iterator[tuple[Path, bool]]:
    """The folders in which Python looks before a site folder, and whether it is the working one."""
    with suppress(OSError):
        if not os.environ.get("PYTHONSAFEPATH"):
            yield Path.cwd(), True
    for entry in filter(None, interpreter.search_path()):
        if _is_same(Path(entry), site):
            return
        yield Path(entry), False


def _imported_from(folder: Path, top: str) -> Path | None:
    """What Python imports as `top` if it looks in a folder; None if it looks further."""
    if is_file(folder / top / "__init__.py"):
        return folder / top
    return folder / f"{top}.py" if is_file(folder / f"{top}.py") else None


def _has_all(folder: Path, top: str, objects: Sequence[str]) -> bool:
    """Whether a folder has binaries where those of the installed package are, as after a build
    in the source folder."""
    parents = {Path(name).parent for name in objects if name.startswith(f"{top}/")}
    return all(any((folder / parent).glob("*.so")) for parent in parents)


def _is_same(path: Path, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def _leave_out(folder: Path, runtime: Runtime, *, is_working_folder: bool) -> cures.Cure:
    if not is_working_folder:
        return cures.in_words(
            cures.BY_HAND, f"take {printable(folder)} out of PYTHONPATH and of the .pth files"
        )
    if runtime.python[:2] < _FIRST_WITH_SAFE_PATH:
        return cures.in_words(cures.BY_HAND, "start Python in another folder")
    setting = fixes.set_variable("PYTHONSAFEPATH", "1")
    return cures.command_in_words(
        cures.SET_VARIABLE,
        "start Python in another folder, or keep this one off its path: {command}",
        setting.command,
    )


def find_other_cuda(
    site: Path, files: Sequence[str], objects: Sequence[str], runtime: Runtime
) -> Finding | None:
    """Does the Python of a package refuse torch's CUDA, whatever its binaries need?"""
    cuda = parse_version(runtime.torch.cuda if runtime.torch else None)
    if runtime.torch is None or cuda is None or not objects:
        return None
    for name in islice(filter(_LOOKS_AT_CUDA.fullmatch, files), _MAX_SOURCES):
        refusal = _REFUSAL.search(_source(site / name))
        top = name.partition("/")[0]
        built = _cuda_of(site / top) if refusal else None
        if refusal is None or built is None:
            continue
        length = 1 if refusal[1] else 2
        if built[:length] != cuda[:length]:
            path = site / next((o for o in objects if o.startswith(f"{top}/")), objects[0])
            binary = read_binary(path, light=True)._replace(owner=find_owner(path))
            return _refused_cuda(top, built, binary, runtime)
    return None


def _refused_cuda(
    top: str, built: tuple[int, ...], binary: BinaryRecord, runtime: Runtime
) -> Finding:
    torch = runtime.torch
    assert torch is not None
    return Finding(
        dimension="CUDA",
        status=REJECTED,
        code=codes.OTHER_CUDA,
        observed=f"torch for CUDA {torch.cuda}",
        needed=f"torch for CUDA {dotted(built)}",
        why=f"import {top} fails: it was built for CUDA {dotted(built)}, compares that with "
        f"torch's, and this torch is built for CUDA {torch.cuda}",
        fix=fixes.rebuild(binary, runtime),
        fault=faults.CUDA_MAJOR,
    )


def _source(path: Path) -> str:
    with suppress(OSError):
        return read_regular(path, _MAX_SOURCE).decode("utf-8", "replace")
    return ""


def _cuda_of(package: Path) -> tuple[int, int] | None:
    """The CUDA that the version of a package names: (13, 0) in `2.11.0+cu130`."""
    for name in _VERSION_FILES:
        version = _CUDA_OF_VERSION.search(_source(package / name))
        if version:
            return int(version[1][:-1]), int(version[1][-1])
    return None
