"""Measures which glue works in which torch, and stores the judge's verdicts with the outcomes.

For every torch minor of the table of layouts, it installs PyPI's wheel into a new environment and
compiles the ATen glue against it (and the stable glue once, against the newest). Then it loads
every glue in every torch, each pair in a new process, and compares its numbers with plain PyTorch.
The judge's verdict comes first, from the files alone.

    python scripts/pair_table/make_pair_table.py --work FOLDER [--minors 2.4,2.9]

Needs uv, a C++ compiler, a Python 3.11 and about 40 GB for a while (each environment is removed
after its column). Without --minors it writes pair_table.json beside this file; docs/fails/compat.md
shows it (`python scripts/pair_table/render_pair_table.py`). Objects that FOLDER already holds are
built again only if their sources changed, so a killed run continues.
"""

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
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from release import PROJECT  # noqa: E402
from release.downloads import uv  # noqa: E402
from release.shell import Log  # noqa: E402

from engine.builder import BuildError, BuildRequest, execute, plan  # noqa: E402
from engine.compat import Runtime, find_torch, judge_file, probe_runtime, read_binary  # noqa: E402
from engine.compat.layouts import LAYOUTS  # noqa: E402
from engine.compat.records import GlueName, dotted  # noqa: E402

RESULT = HERE / "pair_table.json"
STABLE = "stable210"
SECONDS = 300


class Workshop:
    """The environments and objects in the work folder."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        self.log = Log(folder / "uv.log")

    def env(self, minor: str) -> Path:
        return self.folder / minor

    def interpreter(self, minor: str) -> str:
        return str(self.env(minor) / "bin" / "python")

    def install(self, minor: str, *flags: str) -> None:
        """Installs the wheel of a minor into an environment of its own."""
        if not Path(self.interpreter(minor)).exists():
            uv(self.log, ["venv", "--python", self.python, self.env(minor)])
        where = ["--python", self.interpreter(minor), "--cache-dir", self.folder / "uvcache"]
        uv(self.log, ["pip", "install", *flags, *where, f"torch=={minor}.*"])

    def build(self, minor: str, glue: str | None = None) -> Path:
        """The glue of a minor and the CPU kernels; returns the glue."""
        torch = find_torch(self.env(minor))
        glue = glue or str(GlueName("aten", torch.version_tuple, torch.cxx11_abi))
        out = self.folder / "objects" / glue
        request = BuildRequest(out, PROJECT, glue=glue, torch=torch, kernels=("cpu",))
        execute(plan(request), out / "work", jobs=2, log=lambda line: None)
        return out / f"glue-{glue}.so"

    def pair(self, minor: str, runtime: Runtime, glue: Path) -> dict[str, Any]:
        """One cell of the table: the verdict first, then the run."""
        verdict = judge_file(glue, runtime)
        cause = verdict.cause
        return {
            "glue": glue.stem.removeprefix("glue-"),
            "torch": minor,
            "torch_version": runtime.torch.version,
            "accepted": verdict.accepted,
            "reason": f"{cause.dimension}: {cause.why}" if cause else None,
            **self.run(minor, glue),
        }

    def run(self, minor: str, glue: Path) -> dict[str, str]:
        command = [self.interpreter(minor), str(HERE / "run_pair.py"), str(glue)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        try:
            done = subprocess.run(
                [*command, str(glue.with_name("kernels-cpu.so"))],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                env={**environment, "OMP_NUM_THREADS": "2"},
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "hang", "detail": f"no end within {SECONDS} s"}
        try:
            result = json.loads(done.stdout.strip().rpartition("\n")[2])
            outcome, detail = result["outcome"], result["detail"]
        except (ValueError, KeyError):
            tail = " ".join(done.stderr.strip().splitlines()[-2:])
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
            outcome, detail = "abort", f"{how}: {tail[:200]}"
        # Drop the folders of this machine.
        return {"outcome": outcome, "detail": re.sub(r"\S*/(?=[^/\s]+)", "", detail)[:240]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for environments")
    parser.add_argument("--minors", help="comma-separated; all that have a measured layout")
    parser.add_argument("--python", default="3.11", help="the interpreter, as uv takes it")
    options = parser.parse_args()
    minors = options.minors.split(",") if options.minors else [dotted(m) for m in sorted(LAYOUTS)]
    options.work.mkdir(parents=True, exist_ok=True)
    shop = Workshop(options.work.resolve(), options.python)
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:5.0f} s] {text}", flush=True)

    glues = []
    for minor in minors:
        shop.install(minor, "--no-deps")
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
        shop.install(minor)
        runtime = probe_runtime(find_torch(shop.env(minor)), gpu=False, project=PROJECT)
        with ThreadPoolExecutor(2) as pool:
            cells += pool.map(partial(shop.pair, minor, runtime), glues)
        works = sum(cell["outcome"] == "works" for cell in cells if cell["torch"] == minor)
        say(f"torch {minor}: {works} of {len(glues)} glues work")
        shutil.rmtree(shop.env(minor))
    record = read_binary(glues[0]).record
    table = {
        "schema": 1,
        "command": "python scripts/pair_table/make_pair_table.py",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "commit": json.loads(record.text)["git_commit"],
        "seconds": round(time.monotonic() - start),
        "minors": minors,
        "cells": cells,
    }
    if options.minors is None:
        RESULT.write_text(json.dumps(table, indent=1) + "\n")
    else:
        print(json.dumps(cells, indent=1))
    shutil.rmtree(shop.folder / "uvcache", ignore_errors=True)
    wrong = [cell for cell in cells if cell["accepted"] and cell["outcome"] != "works"]
    for cell in wrong:
        say(f"ACCEPTED BUT {cell['outcome']}: {cell['glue']} in torch {cell['torch']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
