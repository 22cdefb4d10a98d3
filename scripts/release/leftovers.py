"""Ends what a killed run left behind, before it can write into the files of the next one.

`kill -9` ends the tool alone: compilers and installers go on. Every process of a run carries the
build folder in its environment, so they are found by that and by nothing else. A command that is
just being forked carries it only once it runs; until then it holds the tool's lock, which a fork
inherits and an exec lets go. (So the tool starts commands with `close_fds=False`: closed one by
one, the lock would go before the mark is there.) Who has the lock finds them all.
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
    ended = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    family = len(ended)
    # Again, until there are none: one may have started another while we looked.
    while left := [p for p in psutil.process_iter() if p.pid not in ended and _works_for(p, build)]:
        for process in left:
            tell(f"ending process {process.pid} ({_name(process)}), which a killed run left behind")
            _kill(process)
        psutil.wait_procs(left, timeout=PATIENCE)
        ended |= {process.pid for process in left}
    return len(ended) - family


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
