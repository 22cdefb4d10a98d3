"""The steps that cibuildwheel runs in a manylinux container, through scripts/cibuildwheel.sh.

    python -m release.container before-all [SELECTOR ...]
    python -m release.container before-build
    python -m release.container repair WHEEL DEST_DIR

cibuildwheel itself calls the build backend between the last two. LLTM_CONDA_PREBUILT names the
folder through which the binaries reach it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from release import BUILD, REPO, ReleaseError
from release.cells import Cell, all_cells, select
from release.fat_steps import partial_version
from release.host import obstacle, probe
from release.matrix import load
from release.pack_steps import true_tag
from release.paths import LOGS, STAMPS, TEMPORARY, fresh
from release.planner import Options, make_plan
from release.progress import Reporter
from release.schema import Matrix
from release.shell import Log
from release.store import Store
from release.tasks import Outcome, Status, Task, run_tasks
from release.wheels import read_wheel


def before_all(folder: Path, selectors: Sequence[str], matrix: Matrix, console: Console) -> int:
    """Compiles and audits what this machine can build, and puts the binaries into `folder`."""
    host = probe(os.environ.get("LLTM_RELEASE_PYTHON", sys.executable), matrix)
    wanted = select(all_cells(matrix), list(selectors))
    reasons = {cell.name: obstacle(cell, host, matrix) for cell in wanted}
    for name, reason in reasons.items():
        if reason:
            console.print(f"skipped {name}: {reason}", markup=False, soft_wrap=True)
    cells = [cell for cell in wanted if not reasons[cell.name]]
    jobs = os.cpu_count() or 1
    plan = make_plan(cells, matrix, host, Options(None, jobs))
    tasks = binary_tasks(plan.tasks)
    with Reporter(console, len(tasks)) as reporter:
        outcomes = run_tasks(tasks, Store(STAMPS), LOGS, reporter, jobs)
    fresh(folder)
    for cell in cells:
        if outcomes[f"audit/{cell.name}"].status in (Status.DONE, Status.REUSED):
            gather(cell, outcomes, folder)
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    console.print(f"{folder}: {names or 'empty'}", markup=False, soft_wrap=True)
    failed = [name for name, outcome in outcomes.items() if outcome.status is Status.FAILED]
    return 1 if failed or not names else 0


def binary_tasks(tasks: dict[str, Task]) -> list[Task]:
    """Those that compile and audit, with all that they need."""
    names = [name for name in tasks if name.startswith("audit/")]
    needed: dict[str, None] = {}
    while names:
        name = names.pop()
        if name not in needed:
            needed[name] = None
            names += tasks[name].needs
    return [task for name, task in tasks.items() if name in needed]


def gather(cell: Cell, outcomes: dict[str, Outcome], folder: Path) -> None:
    """Copies the cell's binaries into `folder`."""
    for name in (f"glue/{cell.glue}", *(f"kernels/{kernels}" for kernels in cell.kernels)):
        for path in outcomes[name].outputs:
            if path.suffix == ".so":
                shutil.copy2(path, folder / path.name)


def before_build() -> int:
    """Removes what an earlier build left, so that the wheel holds today's files alone."""
    for path in (*BUILD.glob("lib*"), *BUILD.glob("bdist.*"), *BUILD.glob("temp.*")):
        shutil.rmtree(path)
    shutil.rmtree(REPO / "lltm_conda" / "lib", ignore_errors=True)
    return 0


def repair(wheel: Path, folder: Path, matrix: Matrix, console: Console) -> int:
    """Writes the wheel into `folder` under its true tag; a missing variant shows in its name."""
    packed = read_wheel(wheel)
    given = {Path(name).name: data for name, data in packed.binaries.items()}
    every = all_cells(matrix)
    whole = [cell for cell in every if cell_files(cell) <= given.keys()]
    with Log(LOGS / "cibuildwheel" / "repair.log") as log:
        tagged = true_tag(log, wheel, given, fresh(TEMPORARY / "cibuildwheel"))
    local = None if len(whole) == len(every) else partial_version(len(whole), len(every))
    folder.mkdir(parents=True, exist_ok=True)
    final = tagged.renamed(local=local).write(folder)
    console.print(f"{final.name}: {len(whole)} of {len(every)} variants", markup=False)
    return 0


def cell_files(cell: Cell) -> set[str]:
    return {f"glue-{cell.glue}.so", *(f"kernels-{name}.so" for name in cell.kernels)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("before-all").add_argument("selectors", nargs="*")
    steps.add_parser("before-build")
    step = steps.add_parser("repair")
    step.add_argument("wheel", type=Path)
    step.add_argument("folder", type=Path)
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    try:
        if args.step == "before-build":
            return before_build()
        if args.step == "repair":
            return repair(args.wheel.resolve(), args.folder.resolve(), load(), console)
        folder = os.environ.get("LLTM_CONDA_PREBUILT")
        if not folder:
            text = "LLTM_CONDA_PREBUILT is not set; pyproject.toml sets it for cibuildwheel"
            raise ReleaseError(f"{text}, else name a folder for the binaries")
        return before_all(Path(folder), args.selectors, load(), console)
    except ReleaseError as error:
        console.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
