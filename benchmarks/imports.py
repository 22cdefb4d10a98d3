"""What `import lltm_conda` adds to `import torch`, in fresh processes that take turns."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys

from .package_path import working_directory
from .schema import Report, Size
from .session import Options, new_report
from .stats import summarise

ALONE = "import torch"
BOTH = "import torch, then lltm_conda"
ADDED = "added by lltm_conda"

_PROGRAMS = {
    ALONE: "import torch",
    BOTH: "import torch\nmiddle = perf_counter()\nimport lltm_conda",
}
_AROUND = (
    "from time import perf_counter\nstart = middle = perf_counter()\n{}\n"
    "end = perf_counter()\nprint(end - start, end - middle)"
)


def _child(program: str) -> tuple[float, float]:
    """Milliseconds of both imports, and of the second, in a fresh process."""
    # The first leaves nothing to measure; the second triples the time of `import torch`.
    unset = ("LLTM_CONDA_LOAD", "PYTHONDONTWRITEBYTECODE")
    done = subprocess.run(
        [sys.executable, "-c", _AROUND.format(program)],
        cwd=working_directory(),
        env={name: value for name, value in os.environ.items() if name not in unset},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(
            f"a fresh process could not run {program.splitlines()[-1]!r}: {last}: "
            "python -m lltm_conda says what is missing"
        )
    whole, added = done.stdout.split()
    return float(whole) * 1e3, float(added) * 1e3


def measure(line: str, rounds: int) -> Report:
    """Import times in milliseconds.

    `added by lltm_conda` is the time of its import statement after torch's, in one process. The
    difference of the other two medians is the same quantity with more noise.
    """
    report = new_report("import", line, Options(protocol="fresh process", rounds=rounds))
    samples: dict[str, list[float]] = {ALONE: [], BOTH: [], ADDED: []}
    for program in _PROGRAMS.values():
        _child(program)  # warm-up: files in the page cache, byte code written
    rng = random.Random(0)
    for _ in range(rounds):
        for name in rng.sample(list(_PROGRAMS), len(_PROGRAMS)):
            whole, added = _child(_PROGRAMS[name])
            samples[name].append(whole)
            if name == BOTH:
                samples[ADDED].append(added)
    for name, values in samples.items():
        report.record(
            summarise(values),
            size=Size(1, 1, 1),
            dtype="-",
            contender=name,
            metric="time",
            unit="ms",
            rounds=values,
        )
    difference = statistics.median(samples[BOTH]) - statistics.median(samples[ALONE])
    report.settings["difference of medians, ms"] = f"{difference:.2f}"
    return report
