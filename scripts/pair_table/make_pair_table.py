"""Measure which glue works in which torch, and hold the judge's verdicts beside it.

For every torch minor of the table of layouts: install its PyPI wheel into an environment of its
own and compile the ATen glue against it (and the stable glue once, against the newest). Then load
every glue in every torch, each in a process of its own, and compare its numbers with plain PyTorch.
The judge's verdict is reached beforehand, from the files alone.

    python scripts/pair_table/make_pair_table.py --work FOLDER [--minors 2.4,2.9] [--keep]

Needs uv, a C++ compiler, a Python 3.11 and about 40 GB for a while (each torch's CUDA libraries are
removed after its column). Writes pair_table.json beside this file; docs/compat.md shows it
(`python scripts/pair_table/render_pair_table.py`). What is installed and built already in FOLDER is
used again, so a killed run continues. After a change of the judge, `--rejudge` replaces the
verdicts alone, from the files that `--keep` left in FOLDER; what was measured stays.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["LLTM_CONDA_LOAD"] = "0"
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from lltm_conda.builder import BuildError, BuildRequest, execute, plan  # noqa: E402
from lltm_conda.compat import TorchInstall, find_torch, judge_file, probe_runtime, read_binary  # noqa: E402
from lltm_conda.compat.layouts import LAYOUTS  # noqa: E402
from lltm_conda.compat.records import dotted  # noqa: E402

RESULT = HERE / "pair_table.json"
STABLE = "stable210"
_SECONDS = 300


class Workshop:
    """The environments and objects in the work folder."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        self.objects = folder / "objects"

    def env(self, minor: str) -> Path:
        return self.folder / minor

    def interpreter(self, minor: str) -> str:
        return str(self.env(minor) / "bin" / "python")

    def uv(self, *arguments: str) -> None:
        # uv does not read pip's settings.
        settings = []
        if arguments[0] == "pip":
            for variable, flag in (
                ("PIP_FIND_LINKS", "--find-links"),
                ("PIP_INDEX_URL", "--index-url"),
            ):
                if os.environ.get(variable):
                    settings += [flag, os.environ[variable]]
        environment = dict(os.environ, UV_CACHE_DIR=str(self.folder / "uvcache"))
        subprocess.run(
            [shutil.which("uv") or "uv", *arguments[:2], "--quiet", *settings, *arguments[2:]]
            if arguments[0] == "pip"
            else [shutil.which("uv") or "uv", *arguments],
            check=True,
            env=environment,
        )

    def install(self, minor: str, dependencies: bool) -> None:
        """The wheel of a minor; with its CUDA libraries only while its column is run."""
        if not (self.env(minor) / "bin" / "python").exists():
            self.uv("venv", "--quiet", "--python", self.python, str(self.env(minor)))
        flags = [] if dependencies else ["--no-deps"]
        self.uv(
            "pip", "install", *flags, "--python", self.interpreter(minor), f"torch=={minor}.*"
        )  # fmt: skip

    def torch(self, minor: str) -> TorchInstall:
        return find_torch(self.env(minor))

    def build(self, minor: str, glue: str | None = None) -> Path:
        """The glue of a minor and the CPU kernels; returns the glue."""
        torch = self.torch(minor)
        glue = glue or f"aten{torch.version_tuple[0]}{torch.version_tuple[1]}-abi{torch.cxx11_abi}"
        out = self.objects / glue
        request = BuildRequest(out_dir=out, glue=glue, torch=torch, kernels=("cpu",))
        execute(plan(request), out / "work", jobs=2, log=lambda line: None)
        return out / f"glue-{glue}.so"

    def verdicts(self, minor: str, glues: list[Path]) -> list[dict[str, Any]]:
        """What the judge says of every glue in the torch of one minor, from the files alone."""
        runtime = probe_runtime(self.torch(minor), gpu=False)
        cells = []
        for glue in glues:
            verdict = judge_file(glue, runtime)
            cause = verdict.cause
            cells.append(
                {
                    "glue": glue.stem.removeprefix("glue-"),
                    "torch": minor,
                    "torch_version": runtime.torch.version if runtime.torch else None,
                    "accepted": verdict.accepted,
                    "reason": None if cause is None else f"{cause.dimension}: {cause.why}",
                }
            )
        return cells

    def column(self, minor: str, glues: list[Path], jobs: int) -> list[dict[str, Any]]:
        """Every glue in the torch of one minor: verdicts first, then the runs."""
        cells = self.verdicts(minor, glues)
        with ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(lambda glue: self.run(minor, glue), glues))
        for cell, result in zip(cells, results, strict=True):
            cell.update(result)
        return cells

    def run(self, minor: str, glue: Path) -> dict[str, str]:
        command = [
            self.interpreter(minor),
            str(HERE / "run_pair.py"),
            str(glue),
            str(glue.with_name("kernels-cpu.so")),
        ]
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
        }
        environment["OMP_NUM_THREADS"] = "2"
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_SECONDS,
                env=environment, cwd=self.folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"outcome": "hang", "detail": f"no end within {_SECONDS} s"}
        try:
            result = json.loads(done.stdout.strip().rpartition("\n")[2])
            return {"outcome": result["outcome"], "detail": self.tidy(result["detail"])}
        except (ValueError, KeyError):
            tail = " ".join(done.stderr.strip().splitlines()[-2:])
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
            return {"outcome": "abort", "detail": self.tidy(f"{how}: {tail[:200]}")}

    def tidy(self, text: str) -> str:
        """Without the folders of this machine."""
        return re.sub(r"\S*/(?=[^/\s]+)", "", text)[:240]


def commit_of(glue: Path) -> str:
    """The commit of the sources, as the build record says it."""
    record = read_binary(glue).record
    return "unknown" if record is None else str(json.loads(record.text).get("git_commit"))


def rejudge(folder: Path, python: str) -> int:
    """Put today's verdicts beside the outcomes that were measured."""
    shop = Workshop(folder, python)
    table = json.loads(RESULT.read_text())
    names = list(dict.fromkeys(cell["glue"] for cell in table["cells"]))
    glues = [shop.objects / name / f"glue-{name}.so" for name in names]
    said = {
        (cell["glue"], cell["torch"]): cell
        for minor in table["minors"]
        for cell in shop.verdicts(minor, glues)
    }
    changed = 0
    for cell in table["cells"]:
        new = said[cell["glue"], cell["torch"]]
        changed += cell["accepted"] != new["accepted"]
        cell.update(accepted=new["accepted"], reason=new["reason"])
    RESULT.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{changed} verdicts changed")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for environments")
    parser.add_argument("--minors", help="comma-separated; all that have a measured layout")
    parser.add_argument("--python", default="3.11", help="the interpreter, as uv takes it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--rejudge", action="store_true", help="judge again, measure nothing")
    options = parser.parse_args()
    if options.rejudge:
        return rejudge(options.work.resolve(), options.python)
    minors = options.minors.split(",") if options.minors else [dotted(m) for m in sorted(LAYOUTS)]
    options.work.mkdir(parents=True, exist_ok=True)
    shop = Workshop(options.work.resolve(), options.python)
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:5.0f} s] {text}", flush=True)

    glues = []
    for minor in minors:
        shop.install(minor, dependencies=False)
        try:
            glues.append(shop.build(minor))
        except BuildError as error:
            print(f"torch {minor}: {error}", file=sys.stderr)
            return 1
        say(f"built {glues[-1].stem}")
    glues.append(shop.build(minors[-1], STABLE))
    say(f"built {glues[-1].stem}")
    cells = []
    for minor in minors:
        shop.install(minor, dependencies=True)
        cells += shop.column(minor, glues, options.jobs)
        works = sum(cell["outcome"] == "works" for cell in cells if cell["torch"] == minor)
        say(f"torch {minor}: {works} of {len(glues)} glues work")
        if not options.keep:
            shutil.rmtree(shop.env(minor))
    table = {
        "schema": 1,
        "command": "python scripts/pair_table/make_pair_table.py",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "commit": commit_of(glues[0]),
        "seconds": round(time.monotonic() - start),
        "minors": minors,
        "cells": cells,
    }
    if options.minors is None:
        RESULT.write_text(json.dumps(table, indent=1) + "\n")
    else:
        print(json.dumps(cells, indent=1))
    if not options.keep:
        shutil.rmtree(shop.folder / "uvcache", ignore_errors=True)
    wrong = [cell for cell in cells if cell["accepted"] and cell["outcome"] != "works"]
    for cell in wrong:
        say(f"ACCEPTED BUT {cell['outcome']}: {cell['glue']} in torch {cell['torch']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
