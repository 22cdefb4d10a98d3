"""Judges and loads a draw of other people's objects under four interpreters.

    python measurements/foreign_table/make_interpreter_table.py --work FOLDER --python PROGRAM ...

The interpreters are the one that runs this program (CPython 3.11), Debian's /usr/bin/python3 of
the same version, which is no position-independent executable, and those that --python names, of
other versions, which get wheels of their own. The objects are drawn from those of the foreign
table, the same ones beside each torch. In a tenth of the rows LD_LIBRARY_PATH is set. The program
stores what came out in measurements/results/foreign_interpreters.json.xz after each interpreter; a
later run goes on where a stopped one stood, and with --again begins anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.append(str(REPO))

from measurements.foreign_table import interpreter_table  # noqa: E402
from measurements.foreign_table.installs import torch_in  # noqa: E402
from measurements.foreign_table.interpreter_table import (  # noqa: E402
    SEED,
    InterpreterTable,
    Row,
)
from measurements.foreign_table.tasks import PROGRAM, Task  # noqa: E402
from measurements.foreign_table.wheels import (  # noqa: E402
    Sample,
    choose_objects,
    damage,
    fetch_wheel,
    make_sample,
    read_list,
)
from torchship.release.shell import CommandFailed  # noqa: E402

COMMAND = "python measurements/foreign_table/make_interpreter_table.py"
TORCHES = ("2.10.0", "2.13.0", "2.15.0")
DEBIAN = "/usr/bin/python3"
OBJECTS = 120
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


def samples_for(work: Path, version: str) -> Iterator[Sample]:
    """The objects of the wheels of a Python, and damaged files."""
    for wheel in read_list().wheels:
        if wheel.python or wheel.platform:
            continue  # for another Python or platform than those of this table
        if version != "3.11":
            wheel = replace(
                wheel, python=version, beside=f"{wheel.beside}-{version}" if wheel.beside else ""
            )
        for release in wheel.versions:
            try:
                root = fetch_wheel(work, wheel, release)
            except CommandFailed:
                print(f"{wheel.name} {release} has no wheel for Python {version}", flush=True)
                continue
            for path in choose_objects(root, wheel):
                yield make_sample(root, path, wheel)
    yield from damage(work)


def draw_samples(work: Path, version: str, count: int) -> list[Sample]:
    samples = sorted(samples_for(work, version), key=lambda sample: str(sample.task.path))
    return random.Random(f"{SEED} {version}").sample(samples, min(count, len(samples)))


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


def make_rows(
    host: Host, samples: Sequence[Sample], *, torch: Path, version: str, kind: str, path: str
) -> list[Row]:
    """Judge and load objects under one setting of LD_LIBRARY_PATH."""
    tasks = [sample.task for sample in samples]
    (of_torch, *judgements), _ = run(
        host, [str(JUDGE), str(torch)], tasks, torch=torch, library_path=path
    )
    outcomes, error = run(host, [str(PROGRAM)], tasks, torch=torch, library_path=path)
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
                object=f"{Path(task.root).name}/{task.object}",
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


def make_column(work: Path, host: Host, samples: Sequence[Sample], version: str) -> list[Row]:
    """The rows of all samples beside one torch, under one interpreter."""
    torch = torch_in(work, version, python=host.version, keeps_cache=True)
    kinds = library_paths(work, torch)
    generator = random.Random(f"{SEED} {host.name} {version}")
    groups: dict[str, list[Sample]] = {"": []}
    for sample in samples:
        kind = generator.choice(sorted(kinds)) if generator.random() < 0.1 else ""
        groups.setdefault(kind, []).append(sample)
    rows = []
    for kind, group in groups.items():
        path = kinds.get(kind, "")
        rows += make_rows(host, group, torch=torch, version=version, kind=kind, path=path)
    return rows


def pyenv_name(program: str) -> str:
    """A program without the folder in which pyenv is installed."""
    return program.replace(os.environ.get("PYENV_ROOT", "?"), "$PYENV_ROOT")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for wheels and torches")
    parser.add_argument("--torches", default=",".join(TORCHES), help="comma-separated versions")
    parser.add_argument(
        "--python", nargs="*", default=[], metavar="PROGRAM", help="interpreters of other versions"
    )
    parser.add_argument("--again", action="store_true", help="forget what is stored")
    parser.add_argument("--objects", type=int, default=OBJECTS, help="how many are drawn")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    hosts = find_hosts(options.python)
    versions = dict.fromkeys(host.version for host in hosts)
    samples = {version: draw_samples(work, version, options.objects) for version in versions}
    is_begun = interpreter_table.PATH.exists() and not options.again
    rows = list(interpreter_table.load().rows) if is_begun else []
    programs = " ".join(map(pyenv_name, options.python))
    done = {(row.torch, row.interpreter) for row in rows}
    start = time.monotonic()
    for torch in options.torches.split(","):
        for python in versions:
            left = [h for h in hosts if h.version == python and (torch, h.name) not in done]
            if not left:
                continue
            if shutil.disk_usage(work).free < _BYTES_FREE:
                raise SystemExit(f"less than {_BYTES_FREE >> 30} GiB are free in {work}")
            for host in left:
                column = make_column(work, host, samples[python], torch)
                rows += column
                interpreter_table.save(
                    InterpreterTable(
                        command=f"{COMMAND} --work FOLDER --python {programs}",
                        machine=interpreter_table.machine(),
                        rows=tuple(rows),
                    )
                )
                wrong = interpreter_table.count_accepted_that_fail(column)
                seconds = round(time.monotonic() - start)
                print(f"[{seconds} s] {torch}, {host.name}: {wrong} accepted fail", flush=True)
            folder = torch_in(work, torch, python=python)
            keep_library(work, folder)
            shutil.rmtree(folder)
        shutil.rmtree(work / "uv-cache", ignore_errors=True)


if __name__ == "__main__":
    main()
