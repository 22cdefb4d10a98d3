"""Measures what hostile shared objects cost the checker's reader.

    python measurements/reader/reader_costs.py [--mutations N]

reads every file of hostile_files.py, prints the worst processor time and memory of each kind,
and stores the table in measurements/results/reader.json. tests/compat/test_compat_hostile.py
holds a sample to the limits. The package must be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[2]
# Last, so that the sources do not shadow the installed package.
sys.path += [str(REPO), str(REPO / "tests" / "compat")]

from lltm_conda._project import PROJECT  # noqa: E402
from lltm_conda.engine.doctor import judge_file, probe_runtime, read_binary  # noqa: E402
from lltm_conda.engine.doctor.elf import Elf, ElfError  # noqa: E402
from measurements import storage  # noqa: E402
from measurements.reader.hostile_files import (  # noqa: E402
    MEGABYTES,
    SECONDS,
    SECONDS_ANY_SIZE,
    mutate,
    real_objects,
    structured,
)

RESULTS = storage.RESULTS / "reader.json"


def exercise(path: Path) -> float:
    """Read the file in every way, then look names up in it; returns processor seconds."""
    start = time.process_time()
    read_binary(path)
    try:
        with Elf(path) as elf:
            for name in ("aoti_torch_get_dim", "lltm_build_record", "PyInit_sample", "x"):
                elf.defines(name)
            elf.version_definitions()
    except ElfError:
        pass
    return time.process_time() - start


class Cost(NamedTuple):
    """Processor seconds and the growth of the process in MB."""

    seconds: float
    megabytes: float


def cost_of(work: Callable[[], float]) -> Cost:
    """What `work` costs in a process of its own; `work` returns its seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            seconds = work()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            os.write(writer, json.dumps([seconds, grown / 1024]).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise RuntimeError(f"reading ended with status {status}")
    return Cost(*json.loads(answer))


def mutations(originals: list[bytes], path: Path, seeds: range) -> float:
    """Exercise a mutation for every seed; returns the longest processor time."""
    worst = 0.0
    for seed in seeds:
        rng = random.Random(seed)
        path.write_bytes(mutate(rng.choice(originals), rng))
        worst = max(worst, exercise(path))
    return worst


def measure(mutation_count: int) -> tuple[dict[str, Cost], bool]:
    """The cost of each kind of file, and whether all keep the limits."""
    runtime = probe_runtime(gpu=False, project=PROJECT)

    def read_and_judge(path: Path) -> float:
        start = time.process_time()
        exercise(path)
        judge_file(path, runtime)
        return time.process_time() - start

    costs: dict[str, Cost] = {}
    are_kept = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        originals = real_objects(folder)
        worst = partial(mutations, originals, folder / "m.so", range(mutation_count))
        costs[f"{mutation_count} mutations, the worst"] = cost_of(worst)
        for kind, path, limit in structured(folder):
            cost = cost_of(partial(read_and_judge, path))
            costs[kind] = cost
            is_small = limit == SECONDS
            are_kept &= cost.seconds <= limit and not (is_small and cost.megabytes > MEGABYTES)
    return costs, are_kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=30_000)
    options = parser.parse_args()
    costs, are_kept = measure(options.mutations)
    for kind, cost in costs.items():
        print(f"{kind:45s} {cost.seconds:7.3f} s {cost.megabytes:7.1f} MB")
    document = {
        "command": "python measurements/reader/reader_costs.py",
        "python": platform.python_version(),
        "limits": {"1 MB": [SECONDS, MEGABYTES], "any size": [SECONDS_ANY_SIZE, None]},
        "seconds and MB": {
            kind: [round(cost.seconds, 3), round(cost.megabytes, 1)] for kind, cost in costs.items()
        },
    }
    storage.save(document, RESULTS)
    return 0 if are_kept else 1


if __name__ == "__main__":
    sys.exit(main())
