"""What a piece of work costs in a process of its own, so that its memory is not the tests'."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from typing import NamedTuple, cast


def in_child(work: Callable[[], object]) -> object:
    """What `work` returns, as JSON holds it. Raises RuntimeError if the process fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise RuntimeError(f"a child process ended with status {status}")
    return json.loads(answer)


class Cost(NamedTuple):
    """Processor seconds and the growth of the process in MB."""

    seconds: float
    megabytes: float


def cost_of(work: Callable[[], float], *, allowed: float | None = None) -> Cost:
    """What `work` costs in a process of its own; `work` returns its seconds.

    If it took as many seconds as `allowed`, or more, it is done again, at most twice: other
    processes on the same cores make it slower, never quicker.
    """

    def measured() -> tuple[float, float]:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds = work()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return seconds, grown / 1024

    for _ in range(3):
        seconds, megabytes = cast("list[float]", in_child(measured))
        if allowed is None or seconds < allowed:
            break
    return Cost(seconds, megabytes)
