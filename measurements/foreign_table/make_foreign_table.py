"""Judges other people's shared objects beside many torches, loads them, and stores both results.

    python -m measurements.foreign_table.make_foreign_table --work FOLDER [--torches 2.6.0,2.15.0]
    python -m measurements.foreign_table.make_foreign_table --work FOLDER --symbols

The objects come from the wheels that distributions.json names; the script adds cut copies of
one object, and files of other kinds. It needs uv, binutils, Python 3.11 and about 12 GB.
FOLDER keeps the wheels for the next run; each torch is deleted after its use. Without
--torches the script uses all of TORCHES and stores the table, which draw_tables.py shows.

With --symbols the script only writes symbols.json beside the checker's code: the torch minors
that export each torch symbol that the objects use, and each C function of the stable ABI.
The file leaves out symbols that all minors or none export, symbols that disappear and come
back, and symbols for GPUs, which depend on torch's build.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from measurements.foreign_table import table
from measurements.foreign_table.causes import Claim, is_right_cause, without_folders
from measurements.foreign_table.installs import exported, symbols, torch_in
from measurements.foreign_table.table import Cell, Column, ForeignTable, Object
from measurements.foreign_table.tasks import Outcome, run_tasks
from measurements.foreign_table.torch_symbols import write_symbols
from measurements.foreign_table.wheels import Sample, damage, fetch, is_vouched
from torchship.doctor import judge_file
from torchship.judge import find_torch, probe_runtime
from torchship.judge.records import UNKNOWN, Runtime

TORCHES = (
    "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0+cpu", "2.13.0",
    "2.14.1", "2.15.0",
)  # fmt: skip
COMMAND = "python -m measurements.foreign_table.make_foreign_table"


class Judgement(NamedTuple):
    """A verdict on an object, and how long it took."""

    verdict: str
    seconds: float
    dimension: str = ""
    observed: str = ""
    why: str = ""
    fix: str = ""

    @property
    def claim(self) -> Claim:
        return Claim(self.dimension, self.observed)


@contextmanager
def only_these_packages(folders: Sequence[str]) -> Iterator[None]:
    """The checker must not see this environment's packages, which the loading process lacks."""
    before = sys.path
    sys.path = [*folders, *(entry for entry in before if "site-packages" not in entry)]
    try:
        yield
    finally:
        sys.path = before


def judge(sample: Sample, runtime: Runtime) -> Judgement:
    start = time.process_time()
    with only_these_packages(sample.task.beside):
        cause = judge_file(sample.task.path, runtime).cause
    seconds = round(time.process_time() - start, 3)
    if cause is None:
        return Judgement("works", seconds)
    return Judgement(
        verdict="unknown" if cause.status == UNKNOWN else "fails",
        seconds=seconds,
        dimension=without_folders(cause.dimension),
        observed=without_folders(cause.observed),
        why=without_folders(cause.why),
        fix=without_folders(cause.fix.text),
    )


def make_column(work: Path, version: str, samples: Sequence[Sample]) -> Column:
    folder = torch_in(work, version)
    torch = find_torch(folder)
    runtime = probe_runtime(torch, gpu=False)
    judgements = [judge(sample, runtime) for sample in samples]
    tasks = [
        sample.task.with_claims(judgement.claim.libraries)
        for sample, judgement in zip(samples, judgements, strict=True)
    ]
    with ThreadPoolExecutor(2) as pool:
        even, odd = pool.map(partial(run_tasks, folder), (tasks[::2], tasks[1::2]))
    halves = (even, odd)
    outcomes = [halves[number % 2][number // 2] for number in range(len(tasks))]
    cells = [
        make_cell(sample, judgement, outcome, folder=folder, version=version)
        for sample, judgement, outcome in zip(samples, judgements, outcomes, strict=True)
    ]
    shutil.rmtree(folder)
    return Column(torch.version, cells)


def make_cell(
    sample: Sample, judgement: Judgement, outcome: Outcome, *, folder: Path, version: str
) -> Cell:
    right_cause = None
    if judgement.verdict != "works" and not outcome.works:
        right_cause = is_right_cause(judgement.claim, outcome, sample.truth, ())
        if not right_cause:  # only now, because `nm` is slow
            lacks = symbols("--undefined-only", sample.task.path) - exported(folder)
            right_cause = is_right_cause(judgement.claim, outcome, sample.truth, lacks)
    return Cell(
        verdict=judgement.verdict,
        seconds=judgement.seconds,
        outcome=outcome.outcome,
        vouched=is_vouched(Path(sample.task.root), version),
        dimension=judgement.dimension,
        observed=judgement.observed,
        why=judgement.why,
        fix=judgement.fix,
        error=outcome.error,
        called=outcome.called,
        right_cause=right_cause,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for wheels and torches")
    parser.add_argument("--torches", help="comma-separated versions; default: all")
    parser.add_argument("--symbols", action="store_true", help="write symbols.json, no table")
    options = parser.parse_args()
    work = options.work.resolve()
    start = time.monotonic()
    if options.symbols:
        write_symbols(work, COMMAND)
        return
    samples = [*fetch(work), *damage(work)]
    objects = [
        Object(f"{Path(sample.task.root).name}/{sample.task.object}", sample.distribution)
        for sample in samples
    ]
    print(f"{len(samples)} objects of {len({o.distribution for o in objects})} distributions")
    columns = []
    for version in options.torches.split(",") if options.torches else TORCHES:
        column = make_column(work, version, samples)
        columns.append(column)
        wrong = sum(cell.verdict == "works" and not cell.works for cell in column.cells)
        seconds = round(time.monotonic() - start)
        print(f"[{seconds} s] {column.torch}: {wrong} accepted objects fail", flush=True)
    if not options.torches:
        table.save(
            ForeignTable(
                command=COMMAND,
                machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
                python=platform.python_version(),
                objects=objects,
                columns=columns,
            )
        )


if __name__ == "__main__":
    main()
