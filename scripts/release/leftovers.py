"""Kills what a killed run left running, before it can write into the files of the next run.

`kill -9` ends the tool alone; compilers and installers go on. Every process of a run has the build
folder in its environment, and is found by that. A command that is just being forked gets that
environment only with its exec; until then it holds the tool's lock, which a fork inherits and an
exec releases. So the tool starts commands with `close_fds=False`: closing the descriptors first
would release the lock too early. The holder of the lock finds all of these processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import psutil

MARK = "RELEASE_BUILD"
PATIENCE = 20.0  # seconds to wait for a killed process to end


def mark(build: Path) -> None:
    """Marks every process started from now on as one that works for `build`."""
    os.environ[MARK] = str(build)


def end_leftovers(build: Path, tell: Callable[[str], None]) -> int:
    """Kills the processes of earlier runs for `build`; returns how many there were.

    Only the holder of the folder's lock may call this: then no other run works for it.
    """
    ended = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    family = len(ended)

    def works_for_build(process: psutil.Process) -> bool:
        environment = process.info["environ"]  # None for the process of another user
        return process.pid not in ended and (environment or {}).get(MARK) == str(build)

    # Repeat until there are none: one may have started another meanwhile.
    while left := [*filter(works_for_build, psutil.process_iter(["name", "environ"]))]:
        for process in left:
            name = process.info["name"]
            tell(f"ending process {process.pid} ({name}), which a killed run left behind")
            _kill(process)
        psutil.wait_procs(left, timeout=PATIENCE)
        ended |= {process.pid for process in left}
    return len(ended) - family


def end_children() -> None:
    """Kills everything that this process started; does not wait for it."""
    for process in psutil.Process().children(recursive=True):
        _kill(process)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()
