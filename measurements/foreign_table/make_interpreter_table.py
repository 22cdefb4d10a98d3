"""Judges and loads other people's objects under four interpreters, beside many torches.

    python -m measurements.foreign_table.make_interpreter_table --work FOLDER --python PROGRAM ...

The interpreters are the one that runs this program (CPython 3.11), Debian's /usr/bin/python3 of
the same version, which is no position-independent executable, and those that --python names, of
other versions, which get wheels of their own. The objects are all those of the foreign table that
have a wheel for the interpreter; the table stores which releases have none. In a tenth of the rows
LD_LIBRARY_PATH is set. One torch is on disk at a time. The program stores what came out in
measurements/results/foreign_interpreters.json.xz after each interpreter beside each torch; a later
run goes on where a stopped one stood, and with --again begins anew. It needs about 15 GB.

With --only DISTRIBUTION ..., it makes the stored rows of these distributions again, each with the
LD_LIBRARY_PATH that it had, under the first two interpreters and those that --python names.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from measurements.foreign_table import interpreter_table
from measurements.foreign_table.installs import torch_in
from measurements.foreign_table.interpreter_table import (
    SEED,
    InterpreterTable,
    MissingWheel,
    Row,
)
from measurements.foreign_table.make_foreign_table import TORCHES
from measurements.foreign_table.tasks import PROGRAM, Task
from measurements.foreign_table.wheels import (
    Sample,
    Wheel,
    choose_objects,
    damage,
    fetch_wheel,
    make_sample,
    read_list,
)
from torchship.release.run.shell import CommandFailed

COMMAND = "python -m measurements.foreign_table.make_interpreter_table"
DEBIAN = "/usr/bin/python3"
FIRST_PYTHON = "3.11"
"""The Python of the foreign table; its wheels are in folders without a suffix."""
WITH_LIBRARY_PATH = 0.1
"""The share of rows with LD_LIBRARY_PATH."""
WORKERS = 2
NO_WHEEL = re.compile(
    "has no wheels with a matching Python (ABI|version) tag|Wheels are required for"
)
JUDGE = Path(__file__).with_name("judge_objects.py")
_BYTES_FREE = 9 << 30
LONGEST = 110
"""The most characters of a text that the table stores."""


@dataclass(frozen=True)
class Host:
    """An interpreter that judges and loads."""

    name: str
    program: str
    version: str
    """Such as `3.11`."""


def find_hosts(programs: Sequence[str]) -> list[Host]:
    """The interpreters, each with its version."""
    own = getattr(sys, "_base_executable", sys.executable)
    debian = [DEBIAN] if Path(DEBIAN).exists() else []
    hosts = []
    for program in (own, *debian, *programs):
        ask = "import platform; print(platform.python_version())"
        answer = subprocess.check_output([program, "-I", "-c", ask], text=True).strip()
        maker = "Debian's" if program == DEBIAN else "pyenv's"
        hosts.append(Host(f"{maker} {answer}", program, answer.rpartition(".")[0]))
    return hosts


@dataclass(frozen=True)
class Samples:
    """What is judged and loaded under one version of Python."""

    samples: list[Sample]
    missing: list[MissingWheel]


def wheel_for(wheel: Wheel, version: str) -> Wheel:
    """An entry of the list for a Python; one of another Python stays one of another."""
    if wheel.python and wheel.python != version:
        return wheel
    if version == FIRST_PYTHON or wheel.python:
        return replace(wheel, python="")  # a wheel for the first Python
    beside = f"{wheel.beside}-{version}" if wheel.beside else ""
    return replace(wheel, python=version, beside=beside)


def collect_samples(work: Path, version: str, only: Sequence[str] = ()) -> Samples:
    """The objects of the wheels of a Python, and damaged files; or those of `only` some wheels."""
    samples: list[Sample] = []
    missing: list[MissingWheel] = []
    for entry in read_list().wheels:
        if only and entry.name not in only:
            continue
        wheel = wheel_for(entry, version)
        for release in wheel.versions:
            try:
                root = fetch_wheel(work, wheel, release, keeps_cache=True)
            except CommandFailed as error:
                if NO_WHEEL.search(error.log_end) is None:
                    raise
                print(f"{wheel.name} {release} has no wheel for Python {version}", flush=True)
                missing.append(MissingWheel(wheel.name, release, version))
                continue
            samples += [make_sample(root, path, wheel) for path in choose_objects(root, wheel)]
    return Samples(samples if only else [*samples, *damage(work)], missing)


def library_paths(work: Path, torch: Path) -> Mapping[str, str]:
    """What LD_LIBRARY_PATH is set to, by the name of the kind."""
    empty = work / "library_paths" / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    (empty / "libc10.so").write_bytes(b"")
    another = work / "library_paths" / "another"
    kinds = {
        "the system's folders": "/usr/lib/x86_64-linux-gnu:/usr/lib",
        "torch's own folder": str(torch / "torch" / "lib"),
        "an empty libc10.so": str(empty),
    }
    return {**kinds, "libc10.so of another torch": str(another)} if another.exists() else kinds


def keep_library(work: Path, torch: Path) -> None:
    """Keep torch's libc10.so for the rows beside other torches."""
    another = work / "library_paths" / "another"
    shutil.rmtree(another, ignore_errors=True)
    another.mkdir(parents=True)
    shutil.copy(torch / "torch" / "lib" / "libc10.so", another)


def run(
    host: Host, program: Sequence[str], tasks: Sequence[Task], *, torch: Path, library_path: str
) -> tuple[list[dict[str, object]], str]:
    """The lines that a program prints of tasks, and the last line of its errors."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_"))}
    environment |= {"PYTHONPATH": str(torch), "OMP_NUM_THREADS": "1"}
    if library_path:
        environment["LD_LIBRARY_PATH"] = library_path
    process = subprocess.run(
        [host.program, "-S", *program],
        input="".join(json.dumps(asdict(task)) + "\n" for task in tasks),
        capture_output=True,
        text=True,
        env=environment,
        cwd=torch,
        check=False,
    )
    errors = [line for line in process.stderr.splitlines() if line.strip()]
    return [json.loads(line) for line in process.stdout.splitlines()], (errors or [""])[-1]


def object_name(task: Task) -> str:
    return f"{Path(task.root).name}/{task.object}"


def make_rows(
    host: Host, samples: Sequence[Sample], *, torch: Path, version: str, kind: str, path: str
) -> list[Row]:
    """Judge and load objects under one setting of LD_LIBRARY_PATH."""
    tasks = [sample.task for sample in samples]
    if not tasks:
        return []
    lines, error = run(host, [str(JUDGE), str(torch)], tasks, torch=torch, library_path=path)
    if len(lines) <= len(tasks):  # the first line is about torch itself
        stopped_at = object_name(tasks[len(lines) - 1]) if lines else "torch"
        raise SystemExit(f"{host.name}, torch {version}: no verdict on {stopped_at}: {error}")
    of_torch, *judgements = lines
    load = partial(run, host, [str(PROGRAM)], torch=torch, library_path=path)
    size = -(-len(tasks) // WORKERS)
    parts = [tasks[start : start + size] for start in range(0, len(tasks), size)]
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(load, parts))
    outcomes = list(chain.from_iterable(lines for lines, _ in answers))
    error = answers[0][1]
    if not outcomes:
        outcomes = [{"outcome": "import torch fails", "error": error}] * len(tasks)
    rows = []
    for task, judgement, outcome in zip(tasks, judgements, outcomes, strict=True):
        # Where `import torch` fails, so does every extension.
        verdict = of_torch if of_torch["verdict"] == "fails" else judgement
        rows.append(
            Row(
                interpreter=host.name,
                torch=version,
                object=object_name(task),
                library_path=kind,
                verdict=str(verdict["verdict"]),
                outcome=str(outcome["outcome"]),
                seconds=float(str(verdict["seconds"])),
                code=str(verdict.get("code", "")),
                why=str(verdict.get("why", ""))[:LONGEST],
                error=str(outcome.get("error", ""))[:LONGEST],
            )
        )
    return rows


def draw_kinds(
    host: Host, version: str, samples: Sequence[Sample], kinds: Sequence[str]
) -> list[str]:
    """How LD_LIBRARY_PATH is set for each sample; "" where it is not."""
    generator = random.Random(f"{SEED} {host.name} {version}")
    return [
        generator.choice(sorted(kinds)) if generator.random() < WITH_LIBRARY_PATH else ""
        for _ in samples
    ]


def make_column(
    work: Path,
    host: Host,
    samples: Sequence[Sample],
    version: str,
    *,
    stored: Sequence[Row],
) -> list[Row]:
    """The rows of all samples beside one torch, under one interpreter.

    Those that are `stored` keep their LD_LIBRARY_PATH.
    """
    torch = torch_in(work, version, python=host.version, keeps_cache=True)
    paths = library_paths(work, torch)
    drawn = draw_kinds(host, version, samples, [*paths])
    before = {row.object: row.library_path for row in stored}
    groups: dict[str, list[Sample]] = {"": []}
    for sample, kind in zip(samples, drawn, strict=True):
        groups.setdefault(before.get(object_name(sample.task), kind), []).append(sample)
    rows = []
    for kind, group in groups.items():
        path = paths.get(kind, "")
        rows += make_rows(host, group, torch=torch, version=version, kind=kind, path=path)
    return rows


def pyenv_name(program: str) -> str:
    """A program without the folder in which pyenv is installed."""
    return program.replace(os.environ.get("PYENV_ROOT", "?"), "$PYENV_ROOT")


class Table:
    """The rows so far, stored after each change."""

    def __init__(
        self,
        stored: InterpreterTable | None,
        *,
        missing: Sequence[MissingWheel],
        only: Sequence[str],
        pythons: Sequence[str],
    ) -> None:
        self.missing = [*dict.fromkeys([*(stored.missing if stored else ()), *missing])]
        self._rows = list(stored.rows) if stored else []
        self._only = only
        self._python = " ".join(map(pyenv_name, pythons))
        self._command = stored.command if stored and self._only else ""

    def lacks(self, torch: str, host: Host) -> bool:
        """Whether the rows beside a torch, under an interpreter, are to be made."""
        return bool(self._only) or not self.rows_of(torch, host)

    def rows_of(self, torch: str, host: Host) -> list[Row]:
        """Those that are stored, of the chosen distributions."""
        beginnings = tuple(f"{name}-" for name in self._only) or ("",)
        return [
            row
            for row in self._rows
            if (row.torch, row.interpreter) == (torch, host.name)
            and row.object.startswith(beginnings)
        ]

    def replace(self, before: Sequence[Row], column: Sequence[Row]) -> None:
        """Put new rows in the place of others."""
        gone = {*before}
        self._rows = [row for row in self._rows if row not in gone] + list(column)
        torches = ",".join(dict.fromkeys(row.torch for row in self._rows))
        command = f"{COMMAND} --work FOLDER --torches {torches} --python {self._python}"
        interpreter_table.save(
            InterpreterTable(
                command=self._command or command,
                machine=interpreter_table.machine(),
                missing=tuple(self.missing),
                rows=tuple(self._rows),
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for wheels and torches")
    parser.add_argument("--torches", default=",".join(TORCHES), help="comma-separated versions")
    parser.add_argument(
        "--python", nargs="*", default=[], metavar="PROGRAM", help="interpreters of other versions"
    )
    parser.add_argument("--again", action="store_true", help="forget what is stored")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="DISTRIBUTION", help="make their rows again"
    )
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    hosts = find_hosts(options.python)
    versions = dict.fromkeys(host.version for host in hosts)
    collected = {version: collect_samples(work, version, options.only) for version in versions}
    is_begun = interpreter_table.PATH.exists() and not options.again
    stored = interpreter_table.load() if is_begun else None
    missing = list(chain.from_iterable(samples.missing for samples in collected.values()))
    table = Table(stored, missing=missing, only=options.only, pythons=options.python)
    start = time.monotonic()
    for torch in options.torches.split(","):
        for python, samples in collected.items():
            left = [host for host in hosts if host.version == python and table.lacks(torch, host)]
            if not left:
                continue
            if shutil.disk_usage(work).free < _BYTES_FREE:
                raise SystemExit(f"less than {_BYTES_FREE >> 30} GiB are free in {work}")
            try:
                folder = torch_in(work, torch, python=python, keeps_cache=True)
            except CommandFailed as error:
                if NO_WHEEL.search(error.log_end) is None:
                    raise
                print(f"torch {torch} has no wheel for Python {python}", flush=True)
                table.missing.append(MissingWheel("torch", torch, python))
                continue
            for host in left:
                before = table.rows_of(torch, host)
                column = make_column(work, host, samples.samples, torch, stored=before)
                table.replace(before, column)
                wrong = interpreter_table.count_accepted_that_fail(column)
                seconds = round(time.monotonic() - start)
                column_name = f"{torch}, {host.name}, {len(column)} rows"
                print(f"[{seconds} s] {column_name}: {wrong} accepted fail", flush=True)
            keep_library(work, folder)
            shutil.rmtree(folder)
        shutil.rmtree(work / "uv-cache", ignore_errors=True)


if __name__ == "__main__":
    main()
