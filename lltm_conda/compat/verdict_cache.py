"""Remembers which files were chosen, under a key of everything that the choice looked at.

Judging costs some ten milliseconds, mostly for Python code that an ordinary import does not need
otherwise. A remembered choice is taken only while every input is the same: sizes and times of all
files involved, versions, platform, settings. It holds paths and texts, no code, and lives in the
user's own cache under the same distrust.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_KEPT = 64


def file_fact(path: Path) -> str:
    """What identifies a file's content short of reading it; raises OSError if it is not there."""
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ino} {status.st_dev}"


def key_of(facts: Iterable[object]) -> str:
    """One key for all inputs."""
    return hashlib.sha256("\n".join(map(str, facts)).encode()).hexdigest()[:32]


def _folder() -> Path:
    from .cache import root

    return root() / "verdicts"


def recall(key: str) -> dict[str, Any] | None:
    """What was remembered under `key`, or None; never raises."""
    from .cache import distrust

    try:
        folder = _folder()
        path = folder / f"{key}.json"
        if distrust(path) or distrust(folder) or distrust(folder.parent):
            return None
        value = json.loads(path.read_bytes())
        return value if isinstance(value, dict) and value.get("key") == key else None
    except (OSError, ValueError, RuntimeError):
        return None


def remember(key: str, value: dict[str, Any]) -> None:
    """Store a choice; what cannot be stored is judged again next time. Never raises."""
    from .cache import CacheError, make

    try:
        folder = _folder()
        make(folder)
        part = folder / f"{key}.{os.getpid()}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({**value, "key": key}, file)
        part.replace(folder / f"{key}.json")
        files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-_KEPT]:
            path.unlink(missing_ok=True)
    except (OSError, ValueError, RuntimeError, CacheError):
        pass
