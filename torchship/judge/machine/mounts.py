"""Whether the file system of a file forbids to execute what lies on it (`noexec`)."""

from __future__ import annotations

import os
from pathlib import Path

from ..target import Target, once


def forbidding_mount(target: Target, path: Path) -> Path | None:
    """The mount point of a file, if its file system forbids execution; else None.

    The dynamic linker maps code from no such file: "failed to map segment from shared object".
    """
    flag = getattr(os, "ST_NOEXEC", 0)
    return _mount_of(path.parent) if flag and _has_flag(target, path.parent, flag) else None


@once
def _has_flag(_: Target, folder: Path, flag: int) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & flag)
    except (AttributeError, OSError, ValueError):
        return False


def _mount_of(folder: Path) -> Path:
    resolved = folder.resolve()
    return next((place for place in (resolved, *resolved.parents) if place.is_mount()), resolved)
