"""Measures what hostile files, packages, wheels and environments cost the checker.

    python measurements/reader/reader_costs.py [--mutations N]

judges every file of hostile_files.py and every case of hostile_packages.py, each in a process
of its own, prints the processor time and the memory of each, and stores them in
measurements/results/reader.json, which measurements/draw_tables.py shows in
docs/numbers/check-costs.md. tests/torchship/doctor/test_compat_hostile.py and
test_compat_budgets.py hold a sample to the limits.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

REPO = Path(__file__).resolve().parents[2]
HELPERS = REPO / "tests" / "torchship"
# Last, so that the sources do not shadow an installed package.
sys.path += [str(REPO), str(HELPERS / "doctor"), str(HELPERS)]

from small_client import PROJECT  # noqa: E402

from measurements import storage  # noqa: E402
from measurements.reader.child import in_child  # noqa: E402
from measurements.reader.hostile_files import (  # noqa: E402
    SECONDS,
    mutate,
    real_objects,
    structured,
)
from measurements.reader.hostile_packages import (  # noqa: E402
    ANY_SIZE,
    ENVIRONMENT,
    ONE_MEGABYTE,
    WHEEL,
    Bound,
    Cases,
)
from torchship.doctor import judge_file  # noqa: E402
from torchship.judge import probe_runtime, read_binary  # noqa: E402
from torchship.judge.elf import Elf, ElfError  # noqa: E402

RESULTS = storage.RESULTS / "reader.json"


def exercise(path: Path) -> float:
    """Read the file in every way, then look names up in it; returns processor seconds."""
    start = time.process_time()
    read_binary(path)
    try:
        with Elf(path) as elf:
            for name in ("aoti_torch_get_dim", "tiny_build_record", "PyInit_sample", "x"):
                elf.defines(name)
            elf.version_definitions()
    except ElfError:
        pass
    return time.process_time() - start


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


def mutations(originals: list[bytes], path: Path, seeds: range) -> float:
    """Exercise a mutation for every seed; returns the longest processor time."""
    worst = 0.0
    for seed in seeds:
        rng = random.Random(seed)
        path.write_bytes(mutate(rng.choice(originals), rng))
        worst = max(worst, exercise(path))
    return worst


class Row(NamedTuple):
    """A measured case; the fields of a row in the stored result."""

    group: str
    case: str
    cost: Cost
    bound: Bound

    @property
    def is_kept(self) -> bool:
        allowed = self.bound.megabytes
        is_small = allowed is None or self.cost.megabytes <= allowed
        return is_small and self.cost.seconds <= self.bound.seconds


def measure(mutation_count: int) -> Iterator[Row]:
    """The cost of each case, as it is known."""
    runtime = probe_runtime(gpu=False, project=PROJECT)

    def read_and_judge(path: Path) -> float:
        start = time.process_time()
        exercise(path)
        judge_file(path, runtime)
        return time.process_time() - start

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in Cases(folder):
            yield Row(case.group, case.name, cost_of(case.work), case.bound)
        for kind, path, limit in structured(folder):
            group = "objects of 1 MB" if limit == SECONDS else "objects of any size"
            bound = ONE_MEGABYTE if limit == SECONDS else ANY_SIZE
            yield Row(group, kind, cost_of(partial(read_and_judge, path)), bound)
        originals = real_objects(folder)
        worst = partial(mutations, originals, folder / "m.so", range(mutation_count))
        yield Row(
            "mutations of real objects", f"{mutation_count} mutations", cost_of(worst), ONE_MEGABYTE
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=30_000)
    options = parser.parse_args()
    rows = []
    for row in measure(options.mutations):
        rows.append(row)
        mark = "" if row.is_kept else "  TOO MUCH"
        name = f"{row.group}: {row.case}"
        print(
            f"{name:75s} {row.cost.seconds:7.3f} s {row.cost.megabytes:7.1f} MB{mark}", flush=True
        )
    document = {
        "command": "python measurements/reader/reader_costs.py",
        "python": platform.python_version(),
        "machine": f"Linux {platform.machine()}, {os.cpu_count()} cores",
        "mutations": options.mutations,
        "limits": {
            "1 MB": ONE_MEGABYTE,
            "any size": ANY_SIZE,
            "environment": ENVIRONMENT,
            "wheel": WHEEL,
        },
        "cases": [
            {
                "group": row.group,
                "case": row.case,
                "seconds": round(row.cost.seconds, 3),
                "megabytes": round(row.cost.megabytes, 1),
                "most seconds": row.bound.seconds,
                "most megabytes": row.bound.megabytes,
            }
            for row in rows
        ],
    }
    storage.save(document, RESULTS)
    return 0 if all(row.is_kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
