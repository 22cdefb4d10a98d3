"""Measures which glue works in which torch, and stores outcomes and the checker's verdicts.

    python scripts/pair_table/make_pair_table.py --work FOLDER [--minors 2.4,2.9]

The script compiles a glue for each torch minor (by default all in the table of class layouts), and
the stable glue. The checker judges every glue for every torch from the files alone; then the script
loads the glue beside the torch. Without --minors it writes pair_table.json, which draw_tables.py
shows. It needs uv, a C++ compiler, Python 3.11 and up to 40 GB. A later run reuses the objects in
FOLDER whose sources are unchanged, so a killed run loses little.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.with_name("foreign_table"))]

from make_foreign_table import install, load, torch_in  # noqa: E402

from torchship.builder import BuildError, BuildRequest, execute, plan  # noqa: E402
from torchship.doctor import find_torch, judge_file, probe_runtime, read_binary  # noqa: E402
from torchship.doctor.layouts import LAYOUTS  # noqa: E402
from torchship.doctor.records import GlueName, dotted  # noqa: E402
from torchship.release.matrix import load_settings  # noqa: E402

PROJECT = load_settings().project
# Outcomes of load_objects.py that have another name in this table.
OUTCOMES = {"load error": "import error", "crash at load": "abort", "crash at call": "abort"}


def build(work: Path, minor: str, glue: str | None = None) -> Path:
    """Builds a glue (None: the ATen glue of the minor) and CPU kernels; returns the glue's path."""
    torch = find_torch(work / "torch" / f"{minor}.*")
    glue = glue or str(GlueName("aten", torch.version_tuple, torch.cxx11_abi))
    out = work / "objects" / glue
    request = BuildRequest(out, PROJECT, glue=glue, torch=torch, kernels=("cpu",))
    execute(plan(request), out / "work", jobs=2, log=lambda line: None)
    return out / f"glue-{glue}.so"


def column(folder: Path, minor: str, glues: list[Path]) -> list[dict[str, Any]]:
    torch = find_torch(folder)
    runtime = probe_runtime(torch, gpu=False, project=PROJECT)
    causes = [judge_file(glue, runtime).cause for glue in glues]
    call = "__import__('run_pair').works(library)"
    task = {"preloads": [], "load": "file", "beside": [str(HERE)], "claimed": [], "call": call}
    tasks = [{**task, "root": str(glue.parent), "object": glue.name} for glue in glues]
    return [
        {
            "glue": glue.stem.removeprefix("glue-"),
            "torch": minor,
            "torch_version": torch.version,
            "accepted": cause is None,
            "reason": f"{cause.dimension}: {cause.why}" if cause else None,
            "outcome": OUTCOMES.get(seen["outcome"], seen["outcome"]),
            "detail": seen["error"][:240],
        }
        for glue, cause, seen in zip(glues, causes, load(folder, tasks), strict=True)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for torches and objects")
    parser.add_argument("--minors", help="comma-separated torch minors; default: all in LAYOUTS")
    options = parser.parse_args()
    minors = options.minors.split(",") if options.minors else [dotted(m) for m in sorted(LAYOUTS)]
    work, start = options.work.resolve(), time.monotonic()
    work.mkdir(parents=True, exist_ok=True)

    glues, cells = [], []
    for minor, glue in (*((minor, None) for minor in minors), (minors[-1], "stable210")):
        torch_in(work, f"{minor}.*", "--no-deps")
        try:
            glues.append(build(work, minor, glue))
        except BuildError as error:
            print(f"torch {minor}: {error}", file=sys.stderr)
            return 1
        print(f"built {glues[-1].stem}", flush=True)
    for minor in minors:
        folder = torch_in(work, f"{minor}.*")
        where = ("--target", str(folder), "--python-version", "3.11")
        install(work, *where, f"torch=={minor}.*")  # adds the packages that torch needs
        cells += column(folder, minor, glues)
        works = sum(cell["outcome"] == "works" for cell in cells if cell["torch"] == minor)
        print(f"torch {minor}: {works} of {len(glues)} glues work", flush=True)
        shutil.rmtree(folder)
    table = {
        "schema": 1,
        "command": "python scripts/pair_table/make_pair_table.py",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "commit": json.loads(read_binary(glues[0]).record.text)["git_commit"],
        "seconds": round(time.monotonic() - start),
        "minors": minors,
        "cells": cells,
    }
    if options.minors is None:
        (HERE / "pair_table.json").write_text(json.dumps(table, indent=1) + "\n")
    else:
        print(json.dumps(cells, indent=1))
    wrong = [cell for cell in cells if cell["accepted"] and cell["outcome"] != "works"]
    for cell in wrong:
        print(f"ACCEPTED BUT {cell['outcome']}: {cell['glue']} in torch {cell['torch']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
