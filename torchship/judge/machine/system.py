"""The facts about this system: its processor, its C library, and the folders of its libraries."""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..text import parse_version

_FOLDERS = ["/usr/lib/{}-linux-gnu", "/lib/{}-linux-gnu", "/usr/lib64", "/lib64"]
_FOLDERS += ["/usr/lib", "/lib"]


def machine(name: str | None = None) -> str:
    """The processor, such as `x86_64` or `aarch64`, by the same name on every system."""
    name = (name or platform.machine()).lower() or "unknown"
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def libc() -> tuple[str, tuple[int, ...]] | None:
    """The C library of this process; see `parse_libc`."""
    glibc = None
    with suppress(ValueError, OSError, AttributeError):
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    return parse_libc(glibc)


def parse_libc(glibc: str | None) -> tuple[str, tuple[int, ...]] | None:
    """The C library of Linux, `("glibc", (2, 36))` or `("musl", ())`; None on other systems.

    `glibc` is what `confstr` tells of it, None where it does not.
    """
    if sys.platform != "linux":
        return None
    name, _, version = (glibc or "musl").partition(" ")
    return name, parse_version(version) or ()


def system_folders() -> Iterator[Path]:
    """The folders that the dynamic linker searches last."""
    for name in _FOLDERS:
        yield Path(name.format(machine()))
    known = libc()
    if known is not None and known[0] != "glibc":
        yield Path("/usr/local/lib")  # glibc finds this one by the cache of `ldconfig` alone
