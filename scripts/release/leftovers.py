"""Ends what a killed run left behind, before it can write into the files of the next one.

`kill -9` ends the tool alone: compilers and installers go on. Every process of a run carries the
build folder in its environment, so they are found by that and by nothing else.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import psutil

MARK = "LLTM_RELEASE_BUILD"
PATIENCE = 20.0  # seconds until a killed process must be gone


def mark(build: Path) -> None:
    """Every process that is started from now on is known to work for that build folder."""
    os.environ[MARK] = str(build)


def end_leftovers(build: Path, tell: Callable[[str], None]) -> int:
    """Kills the processes of earlier runs for that build folder; how many there were.

    To be called by the holder of the folder's lock: nobody else may be working for it.
    """
    family = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    left = [p for p in psutil.process_iter() if p.pid not in family and _works_for(p, build)]
    for process in left:
        tell(f"ending process {process.pid} ({_name(process)}), which a killed run left behind")
        _kill(process)
    psutil.wait_procs(left, timeout=PATIENCE)
    return len(left)


def end_children() -> None:
    """Kills everything that this process has started.

    Who waits for one of them learns how it ended: nothing is waited for here.
    """
    for process in psutil.Process().children(recursive=True):
        _kill(process)


def _works_for(process: psutil.Process, build: Path) -> bool:
    try:
        return process.environ().get(MARK) == str(build)
    except (psutil.Error, OSError):
        return False  # another user's, or gone


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return "gone"


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()
