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
from typing import Annotated

import typer
from rich.console import Console

from release import BUILD, PACKAGE, ReleaseError
from release.cells import all_cells, required
from release.fat_steps import partial_version
from release.host import probe
from release.matrix import load
from release.pack_steps import PREBUILT, true_tag
from release.paths import LOGS, TEMPORARY, fresh
from release.planner import Options
from release.run import Release, Request
from release.shell import Log
from release.tasks import GOOD, Status
from release.wheels import read_wheel

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)


@app.command()
def before_all(selectors: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Compiles and audits what this machine can build, into the folder of PREBUILT."""
    target = os.environ.get(PREBUILT)
    if not target:
        raise ReleaseError(f"{PREBUILT} is not set; set it to a folder for the binaries")
    matrix = load()
    host = probe(os.environ.get("RELEASE_PYTHON", sys.executable), matrix)
    request = Request(tuple(selectors or ()), channel="bootstrap", jobs=os.cpu_count() or 1)
    release = Release(request, matrix, host, console)
    for name, reason in release.skipped.items():
        console.print(f"skipped {name}: {reason}", markup=False, soft_wrap=True)
    plan = release.plan(Options(None, pack=False))
    outcomes = release.do(plan)
    folder = fresh(Path(target))
    for own in plan.of.values():
        if own.audit and outcomes[own.audit.name].status in GOOD:
            for path in (p for task in own.binaries for p in outcomes[task.name].outputs):
                shutil.copy2(path, folder / path.name)
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    console.print(f"{folder}: {names or 'empty'}", markup=False, soft_wrap=True)
    failed = any(outcome.status is Status.FAILED for outcome in outcomes.values())
    raise typer.Exit(1 if failed or not names else 0)


@app.command()
def before_build() -> None:
    """Removes what an earlier build left, so that the wheel holds only this build's files."""
    for path in (*BUILD.glob("lib*"), *BUILD.glob("bdist.*"), *BUILD.glob("temp.*")):
        shutil.rmtree(path)
    shutil.rmtree(PACKAGE / "lib", ignore_errors=True)


@app.command()
def repair(wheel: Path, folder: Path) -> None:
    """Writes the wheel into a folder under its true tag; its name says if it lacks variants."""
    packed = read_wheel(wheel.resolve())
    given = {Path(name).name: data for name, data in packed.binaries.items()}
    matrix = load()
    whole = [cell.name for cell in all_cells(matrix) if {*cell.files} <= given.keys()]
    with Log(LOGS / "cibuildwheel" / "repair.log") as log:
        tagged = true_tag(log, wheel.resolve(), given, fresh(TEMPORARY / "cibuildwheel"))
    local = partial_version(whole, required(matrix))
    folder.mkdir(parents=True, exist_ok=True)
    final = tagged.renamed(local=local).write(folder)
    console.print(f"{final.name}: {', '.join(whole)}", markup=False)


if __name__ == "__main__":
    try:
        app()
    except ReleaseError as error:
        console.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
        sys.exit(2)
