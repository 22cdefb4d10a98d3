"""Installs what was packed into fresh environments and runs it there."""

from collections.abc import Sequence
from pathlib import Path

from release import BUILD, EXAMPLE, FOREIGN, PACKAGE, PROJECT, SMOKE, emulation, of_project
from release.cells import Cell
from release.environments import make_venv
from release.paths import TEMPORARY, fresh
from release.shell import Log, clean_env
from release.tasks import Context, Task


def run_installed(
    log: Log,
    python: Path,
    folder: Path,
    name: str,
    *,
    site: Path | None = None,
    glue: str | None = None,
    gpu: bool = True,
    checker: bool = True,
) -> Path:
    """Runs the checker and the smoke test in an environment; returns the smoke test's JSON report.

    Both run in an empty folder, where they cannot see the source tree. `site` is a folder with the
    package, used instead of the installed one; `glue` is the one that must be chosen. Without
    `gpu`, a CUDA build of torch stands in for a CPU build.
    """
    empty = fresh(TEMPORARY / "run" / name)
    env = clean_env(PATH=f"{folder / 'bin'}:{clean_env()['PATH']}")
    env |= {"PYTHONPATH": str(site)} if site else {}
    env |= {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    env |= emulation.settings()
    if checker:
        # An import of torch takes qemu 20 s: the live run is the smoke test's there.
        words = ["--torch", folder] if FOREIGN else []
        log.run([python, "-m", PROJECT.package, *words], env=env, cwd=empty)
    report = BUILD / "smoke" / f"{name}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    words = ["--outside", PACKAGE, "--json", report]
    words += ["--glue", glue] if glue else []
    remedy = "the lines in the log that begin with FAILED say what is wrong"
    log.run([python, SMOKE, *words], env=env, cwd=empty, remedy=remedy)
    return report


def venv(
    context: Context,
    *,
    cell: Cell,
    folder: Path,
    wheel: Task,
    python: str,
    torch: str,
    cache: Path | None,
    borrowed: Path | None,
) -> Sequence[Path]:
    """A new virtual environment `folder` with the wheel, in which it is run.

    Its torch is installed, through `cache` if there is one, or `borrowed` from site-packages.
    """
    source = context.only(wheel).as_uri()
    extras = "" if FOREIGN else "[examples]"
    wanted = [f"{PROJECT.distribution}{extras} @ {source}", f"torch=={torch}", "numpy"]
    interpreter = make_venv(context.log, folder, python, wanted, cache=cache, borrowed=borrowed)
    gpu = cell.cuda_major is not None
    name = f"{cell.name}-venv"
    return [folder, run_installed(context.log, interpreter, folder, name, glue=cell.glue, gpu=gpu)]


def example(context: Context, *, cell: Cell, venv: Task) -> Sequence[Path]:
    """Runs the example in the virtual environment; its exit code says whether it passed."""
    out = fresh(BUILD / EXAMPLE.stem / cell.name)
    python = context.made[venv][0] / "bin" / "python"
    command = [python, EXAMPLE, "--out", out]
    context.log.run(command, cwd=out, remedy=of_project("example_needs"))
    return [out]
