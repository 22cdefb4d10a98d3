"""Tells the facts of the Python that runs this file, as JSON after a mark; see pythons.py.

It runs by itself in the Python that is judged, which may be as old as 3.7: no newer syntax, and
no import of this package. It imports no torch.
"""

from __future__ import annotations

import json
import os
import platform
import site
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path


def search_path() -> list[str]:
    """What `sys.path` is without `-I`, but for the folder of the script.

    `-I` leaves out PYTHONPATH and the user's own site-packages.
    """
    entries = list(sys.path)
    if has_user_site():
        folder = site.getusersitepackages()
        if Path(folder).is_dir():
            site.addsitedir(folder)
            added = [entry for entry in sys.path if entry not in entries]
            # That of a virtual environment comes before it, and those of its base behind.
            first = [sys.prefix] if sys.prefix != sys.base_prefix else []
            behind = {*site.getsitepackages()} - {*site.getsitepackages(first)}
            sites = [entry for entry in entries if entry in behind]
            position = entries.index(sites[0]) if sites else len(entries)
            entries[position:position] = added
    variable = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # The working folder may be gone; it does not matter to whole paths.
    whole = [
        entry if entry.startswith("/") else str(Path.cwd() / entry) for entry in variable if entry
    ]
    entries = whole + entries
    unique: list[str] = []
    for entry in entries:
        if entry and entry not in unique:
            unique.append(entry)
    return unique


def has_user_site() -> bool:
    """Whether this Python without `-I` looks into the user's own site-packages."""
    if os.environ.get("PYTHONNOUSERSITE"):
        return False
    if sys.prefix == sys.base_prefix:
        return True
    try:
        with Path(sys.prefix, "pyvenv.cfg").open() as config:
            lines = [line.partition("=") for line in config.read(65536).lower().splitlines()]
    except (OSError, UnicodeDecodeError):
        return False
    return any(
        key.strip() == "include-system-site-packages" and value.strip() == "true"
        for key, _, value in lines
    )


def origin_of_torch(path: list[str]) -> str | None:
    """The file of the torch that `import torch` takes; None if there is none."""
    try:
        spec = PathFinder.find_spec("torch", path) or find_spec("torch")
    except Exception:  # hooks of editable packages may raise anything
        return None
    return spec.origin if spec is not None else None


def libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return None


def libstdcxx() -> str | None:
    """The libstdc++ that this process finds, as an extension without a path of its own would."""
    try:
        import ctypes  # a build of Python can lack it

        ctypes.CDLL("libstdc++.so.6")
        with Path("/proc/self/maps").open() as maps:
            for line in maps:
                if "/libstdc++.so" in line:
                    return line[line.find("/") :].rstrip("\n")
    except (ImportError, OSError):
        pass
    return None


def facts() -> dict[str, object]:
    path = search_path()
    sites = site.getsitepackages()
    if has_user_site():
        sites.append(site.getusersitepackages())
    return {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "path": path,
        "sites": sites,
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "free_threaded": "t" in getattr(sys, "abiflags", ""),
        "machine": platform.machine(),
        "libc": libc(),
        "libstdcxx": libstdcxx(),
        "torch": origin_of_torch(path),
        "library": sorted(getattr(sys, "stdlib_module_names", ())),
    }


if __name__ == "__main__":
    sys.stdout.write("\ntorch-doctor-probe:" + json.dumps(facts()) + "\n")
