"""What `import lltm_conda` adds to `import torch`, in fresh processes."""

import os
import subprocess
import sys
import tempfile

from .machine import ROOT
from .schema import Report, Result, Size, summarise
from .session import Options, new_report

TORCH = "import torch"
ADDED = "added by lltm_conda"
PROGRAM = f"""\
import sys
from time import perf_counter
sys.path.append({str(ROOT)!r})
start = perf_counter()
import torch
middle = perf_counter()
import lltm_conda
print(middle - start, perf_counter() - middle)
"""


def _child() -> list[float]:
    # The first variable leaves nothing to measure; the second triples the time of `import torch`.
    unset = ("LLTM_CONDA_LOAD", "PYTHONDONTWRITEBYTECODE")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tempfile.gettempdir(),
        env={name: value for name, value in os.environ.items() if name not in unset},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(
            f"a fresh process could not import torch and lltm_conda: {last}: "
            "python -m lltm_conda says what is missing"
        )
    return [float(seconds) * 1e3 for seconds in done.stdout.split()]


def measure(line: str, rounds: int) -> Report:
    report = new_report("import", line, Options(protocol="fresh process", rounds=rounds))
    _child()  # warm-up: files in the page cache, byte code written
    samples = [_child() for _ in range(rounds)]
    for name, values in zip((TORCH, ADDED), zip(*samples, strict=True), strict=True):
        fields = {"size": Size(1, 1, 1), "dtype": "-", "contender": name, "metric": "time"}
        fields |= {"unit": "ms", "rounds": list(values), **vars(summarise(values))}
        report.results.append(Result(**fields))
    return report
