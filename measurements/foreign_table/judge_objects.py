"""Judges shared objects beside the torch of this interpreter, from their files alone.

    python -S judge_objects.py TORCH_FOLDER < tasks > judgements

The first line that it prints is about torch itself. tasks.py says what a task holds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

REPO = str(Path(__file__).resolve().parents[2])
sys.path.append(REPO)

from measurements.foreign_table.causes import without_folders  # noqa: E402
from measurements.foreign_table.tasks import Task  # noqa: E402
from torchship.doctor import judge_file  # noqa: E402
from torchship.doctor.checks.torch_loading import judge_torch  # noqa: E402
from torchship.judge import find_torch, probe_runtime  # noqa: E402
from torchship.judge.records import UNKNOWN, Finding  # noqa: E402

sys.path.remove(REPO)  # the checker may not find our packages


def describe(cause: Finding | None, start: float) -> dict[str, object]:
    """A verdict as JSON takes it; `start` is when the checker began to work for it."""
    seconds = round(time.process_time() - start, 3)
    if cause is None:
        return {"verdict": "works", "seconds": seconds}
    return {
        "verdict": "unknown" if cause.status == UNKNOWN else "fails",
        "seconds": seconds,
        "code": str(cause.code or ""),
        "why": without_folders(cause.why),
    }


def main(arguments: Sequence[str]) -> None:
    runtime = probe_runtime(find_torch(arguments[0]), gpu=False)
    start = time.process_time()
    of_torch = judge_torch(runtime)
    print(json.dumps(describe(of_torch.cause if of_torch else None, start)), flush=True)
    for line in sys.stdin:
        task = Task(**json.loads(line))
        before = list(sys.path)
        sys.path[:0] = [task.root, *task.beside]
        start = time.process_time()
        cause = judge_file(task.path, runtime).cause
        sys.path[:] = before
        print(json.dumps(describe(cause, start)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
