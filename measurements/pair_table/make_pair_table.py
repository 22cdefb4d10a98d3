"""Measures which glue works in which torch, and stores outcomes and the checker's verdicts.

    python -m measurements.pair_table.make_pair_table --work FOLDER [--minors 2.4,2.9]

The script compiles a glue for each torch minor (by default all in the table of class
layouts), and the stable glue. The checker judges every glue for every torch from the files
alone; then the script loads the glue beside the torch. Without --minors it stores the table,
which draw_tables.py shows. It needs uv, a C++ compiler, Python 3.11 and up to 40 GB. A later
run reuses the objects in FOLDER whose sources are unchanged, so a killed run loses little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from measurements.foreign_table.installs import install, torch_in
from measurements.foreign_table.tasks import Task, run_tasks
from measurements.pair_table import table
from measurements.pair_table.table import Pair, PairTable
from torchship.builder import BuildError, BuildRequest, execute, plan
from torchship.doctor import judge_file
from torchship.judge import find_torch, probe_runtime, read_binary
from torchship.judge.reading.layouts import LAYOUTS
from torchship.judge.records import GlueName, dotted
from torchship.release.matrix.load import load_settings

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]

PROJECT = load_settings().project
# Outcomes of load_objects.py that have another name in this table.
OUTCOMES = {"load error": "import error", "crash at load": "abort", "crash at call": "abort"}
CALL = "__import__('run_pair').works(library)"


def build(work: Path, minor: str, glue: str | None = None) -> Path:
    """Builds a glue (None: the ATen glue of the minor) and CPU kernels; returns the glue's path."""
    torch = find_torch(work / "torch" / f"{minor}.*")
    glue = glue or str(GlueName("aten", torch.version_tuple, torch.cxx11_abi))
    out = work / "objects" / glue
    request = BuildRequest(out, load_settings().project, glue=glue, torch=torch, kernels=("cpu",))
    execute(plan(request), out / "work", jobs=2, log=lambda line: None)
    return out / f"glue-{glue}.so"


def make_column(folder: Path, minor: str, glues: Sequence[Path]) -> list[Pair]:
    torch = find_torch(folder)
    runtime = probe_runtime(torch, gpu=False, project=load_settings().project)
    causes = [judge_file(glue, runtime).cause for glue in glues]
    tasks = [
        Task(root=str(glue.parent), object=glue.name, beside=[str(HERE), str(REPO)], call=CALL)
        for glue in glues
    ]
    return [
        Pair(
            glue=glue.stem.removeprefix("glue-"),
            torch=minor,
            torch_version=torch.version,
            accepted=cause is None,
            reason=f"{cause.dimension}: {cause.why}" if cause else None,
            outcome=OUTCOMES.get(outcome.outcome, outcome.outcome),
            detail=outcome.error[:240],
        )
        for glue, cause, outcome in zip(glues, causes, run_tasks(folder, tasks), strict=True)
    ]


def build_glues(work: Path, minors: Sequence[str]) -> list[Path]:
    """The ATen glue of each minor, and the stable glue; raises BuildError."""
    glues = []
    for minor, glue in (*((minor, None) for minor in minors), (minors[-1], "stable210")):
        torch_in(work, f"{minor}.*", "--no-deps")
        try:
            glues.append(build(work, minor, glue))
        except BuildError as error:
            raise BuildError(f"torch {minor}: {error}") from error
        print(f"built {glues[-1].stem}", flush=True)
    return glues


def commit_of(glue: Path) -> str:
    """The commit in the glue's own record."""
    record = read_binary(glue).record
    if record is None:
        raise BuildError(f"{glue} has no build record; delete it and run this again")
    return str(json.loads(record.text)["git_commit"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for torches and objects")
    parser.add_argument("--minors", help="comma-separated torch minors; default: all in LAYOUTS")
    options = parser.parse_args()
    minors = options.minors.split(",") if options.minors else [dotted(m) for m in sorted(LAYOUTS)]
    work = options.work.resolve()
    start = time.monotonic()
    work.mkdir(parents=True, exist_ok=True)
    try:
        glues = build_glues(work, minors)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    pairs: list[Pair] = []
    for minor in minors:
        folder = torch_in(work, f"{minor}.*")
        where = ("--target", str(folder), "--python-version", "3.11")
        install(work, *where, f"torch=={minor}.*")  # adds the packages that torch needs
        column = make_column(folder, minor, glues)
        pairs += column
        working = sum(pair.works for pair in column)
        print(f"torch {minor}: {working} of {len(glues)} glues work", flush=True)
        shutil.rmtree(folder)
    if options.minors is None:
        table.save(
            PairTable(
                command="python -m measurements.pair_table.make_pair_table",
                machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
                commit=commit_of(glues[0]),
                seconds=round(time.monotonic() - start),
                minors=minors,
                cells=pairs,
            )
        )
    else:
        print(json.dumps([asdict(pair) for pair in pairs], indent=1))
    wrong = [pair for pair in pairs if pair.accepted and not pair.works]
    for pair in wrong:
        print(f"ACCEPTED BUT {pair.outcome}: {pair.glue} in torch {pair.torch}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
