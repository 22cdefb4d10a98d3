"""Measures what a look costs: the doctor's time beside that of the imports themselves.

    python -m measurements.environments.measure_costs [--packages N] [--folder DIR]

It makes packages with one small extension each beside this Python's torch, times the import of
each in a process of its own, and then the doctor on one of them and on all. It stores seconds, the
least of some runs, in measurements/results/doctor_costs.json: those of the clock, and those of
the processor, which tell more on a machine that does other things as well.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from measurements import storage
from measurements.environments.environment import DOCTOR, REPO
from measurements.environments.linked_base import link_base
from measurements.environments.pack import main as pack

OUT = storage.RESULTS / "doctor_costs.json"
FOLDER = REPO / "build" / "costs"
RUNS = 3
#: What the doctor may take beyond the imports, in seconds.
MORE_FOR_ONE, MORE_FOR_ALL = 2.0, 5.0

_SOURCE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", "", -1};
extern "C" PyObject* PyInit__C() { return PyModule_Create(&definition); }
"""


def make(folder: Path, packages: int) -> Path:
    """An environment with torch and small packages of torch; returns its Python."""
    base = link_base(folder / "env")
    (site,) = base.glob("lib/python*/site-packages")
    python = base / "bin" / "python"
    include = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    source = folder / "extension.cpp"
    source.write_text(_SOURCE)
    extension = folder / "_C.so"
    libraries = [f"-L{site / 'torch' / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
    command = ["g++", "-shared", "-fPIC", str(source), "-o", str(extension), f"-I{include}"]
    subprocess.run([*command, *libraries, "-Wl,--allow-shlib-undefined"], check=True)
    for number in range(packages):
        package = site / f"small{number}"
        package.mkdir()
        (package / "__init__.py").write_text("import torch\nfrom . import _C\n")
        shutil.copy(extension, package / "_C.so")
        pack(site, folder / "wheels", package.name, "1.0", "torch==2.13.0")
    return python


@dataclass(frozen=True)
class Cost:
    """Seconds of the quickest of some runs."""

    clock: float
    processor: float


def cost_of(command: list[str], folder: Path) -> Cost:
    """Raises CalledProcessError if a run fails."""
    costs = []
    variables = {**os.environ, "HOME": str(folder)}  # where no builds are cached
    for _ in range(RUNS):
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        costs.append(Cost(clock=time.perf_counter() - start, processor=used))
    return Cost(min(one.clock for one in costs), min(one.processor for one in costs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--packages", type=int, default=20, metavar="N")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    folder = options.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    empty = folder / "work"
    empty.mkdir(parents=True)
    python = make(folder, options.packages)
    doctor = [sys.executable, "-I", "-c", DOCTOR, str(REPO), "--python", str(python)]
    alone = cost_of([str(python), "-c", "import small0"], empty)
    one = cost_of([*doctor, "small0"], empty)
    every = cost_of(doctor, empty)
    cores = len(os.sched_getaffinity(0))
    allowed_for_one = alone.clock + MORE_FOR_ONE
    allowed_for_all = options.packages * alone.clock / cores + MORE_FOR_ALL
    result: dict[str, object] = {
        "command": "python -m measurements.environments.measure_costs",
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{cores} cores, torch 2.13.0 for the CPU",
        "packages": options.packages,
        "import_of_one": asdict(alone),
        "doctor_on_one": asdict(one),
        "doctor_on_all": asdict(every),
        "allowed_for_one": allowed_for_one,
        "allowed_for_all": allowed_for_all,
    }
    storage.save(result, OUT)
    print("\n".join(f"{name}: {value}" for name, value in result.items()))
    shutil.rmtree(folder)
    return int(one.clock > allowed_for_one or every.clock > allowed_for_all)


if __name__ == "__main__":
    sys.exit(main())
