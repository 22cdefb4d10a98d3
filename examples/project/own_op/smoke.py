"""What `python -m own_op` and the release tool compute to see that the op works."""

from typing import Any

from .engine.runtime.live_run import Parts, live_run
from .loader import LOADER


def parts() -> Parts:
    """The op, its definition, and what both are called with."""
    from .reference import parts as parts_of_op

    return parts_of_op()


def run() -> dict[str, Any]:
    """The live run of the checker's report."""
    return live_run(LOADER, parts)
