"""Runs a function in a process of its own, so that its memory is not that of this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable


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
