"""The steps that cibuildwheel runs in a manylinux container, through scripts/cibuildwheel.sh.

    python -m release.container before-all [SELECTOR ...]
    python -m release.container before-build
    python -m release.container repair WHEEL DEST_DIR

Between the last two, cibuildwheel calls the build backend, which finds the binaries in the folder
that the project's variable PREBUILT names.
"""

import os
import shutil
import sys
from pathlib import Path

from rich.console import Console

from release import BUILD, PACKAGE, ReleaseError
from release.cells import all_cells, required
from release.host import probe
from release.matrix import load
from release.pack_steps import PREBUILT, partial_version, true_tag
from release.paths import LOGS, TEMPORARY, fresh
from release.run import Release
from release.shell import Log
from release.tasks import GOOD, Status
from release.wheels import read_wheel

console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def before_all(*selectors: str) -> int:
    """Compiles and audits what this machine can build, into the folder of PREBUILT."""
    target = os.environ.get(PREBUILT)
    if not target:
        raise ReleaseError(f"{PREBUILT} is not set; set it to a folder for the binaries")
    matrix = load()
    host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), matrix)
    jobs = os.cpu_count() or 1
    release = Release(selectors, matrix, host, console, channel="bootstrap", jobs=jobs)
    for name, reason in release.skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False, soft_wrap=True)
    plan = release.plan(pack=False)
    outcomes = release.do(plan)
    folder = fresh(Path(target))
    for cell in plan.cells:
        if outcomes[f"audit/{cell}"].status in GOOD:
            for path in (p for t in plan.binaries(cell) for p in outcomes[t.name].outputs):
                shutil.copy2(path, folder / path.name)
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    console.print(f"{folder}: {names or 'empty'}", markup=False, soft_wrap=True)
    failed = any(outcome.status is Status.FAILED for outcome in outcomes.values())
    return 1 if failed or not names else 0


def before_build() -> int:
    """Removes the files of earlier builds, so that the wheel holds only this build's files."""
    for path in (*BUILD.glob("lib*"), *BUILD.glob("bdist.*"), *BUILD.glob("temp.*")):
        shutil.rmtree(path)
    shutil.rmtree(PACKAGE / "lib", ignore_errors=True)
    return 0


def repair(name: str, dest: str) -> int:
    """Writes the wheel with its true tag into a folder; its name says if variants are missing."""
    wheel, folder = Path(name).resolve(), Path(dest)
    packed = read_wheel(wheel)
    given = {Path(name).name: data for name, data in packed.binaries.items()}
    matrix = load()
    whole = [cell.name for cell in all_cells(matrix) if {*cell.files} <= given.keys()]
    with Log(LOGS / "cibuildwheel" / "repair.log") as log:
        tagged = true_tag(log, wheel, given, fresh(TEMPORARY / "cibuildwheel"))
    local = partial_version(whole, required(matrix))
    folder.mkdir(parents=True, exist_ok=True)
    final = tagged.renamed(local=local).write(folder)
    console.print(f"{final.name}: {', '.join(whole)}", markup=False)
    return 0


if __name__ == "__main__":
    steps = {"before-all": before_all, "before-build": before_build, "repair": repair}
    try:
        sys.exit(steps[sys.argv[1]](*sys.argv[2:]))
    except ReleaseError as error:
        console.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
        sys.exit(2)
