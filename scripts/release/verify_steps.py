"""Installs what was packed into fresh environments and runs it there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from release import BUILD, REPO
from release.cells import Cell
from release.environments import make_venv
from release.paths import ENVS, TEMPORARY, fresh
from release.shell import Log, clean_env
from release.tasks import Context

SMOKE = REPO / "scripts" / "release" / "smoke.py"


def run_installed(
    log: Log,
    python: Path,
    folder: Path,
    name: str,
    *,
    site: Path | None = None,
    glue: str | None = None,
    gpu: bool = True,
) -> Path:
    """Explains itself, then computes; from an empty folder, so that no source tree is seen.

    Args:
        log: gets what is said.
        python: the interpreter of the environment.
        folder: the environment.
        name: what the report is called.
        site: a folder with lltm that comes before what is installed in the environment.
        glue: the glue that must have been chosen.
        gpu: whether it may see a GPU; a CUDA build of torch stands in for a CPU one without.

    Returns:
        The report in JSON: what was computed, where, with which binaries.
    """
    empty = fresh(TEMPORARY / "run" / name)
    env = clean_env(PATH=f"{folder / 'bin'}:{clean_env()['PATH']}")
    if site is not None:
        env["PYTHONPATH"] = str(site)
    if not gpu:
        env["CUDA_VISIBLE_DEVICES"] = ""
    log.run([python, "-m", "lltm_conda"], env=env, cwd=empty)
    report = BUILD / "smoke" / f"{name}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    words = ["--outside", REPO / "lltm_conda", "--json", report]
    words += ["--glue", glue] if glue else []
    remedy = "what did not hold is in the log, on the lines that begin with FAILED"
    log.run([python, SMOKE, *words], env=env, cwd=empty, remedy=remedy)
    return report


def venv_folder(cell: Cell) -> Path:
    return ENVS / f"{cell.name}-venv"


def venv(
    context: Context,
    *,
    cell: Cell,
    python: str,
    torch: str,
    cache: Path | None,
    borrowed: Path | None,
) -> Sequence[Path]:
    """A new virtual environment with the wheel, in which it is run.

    Its torch is installed, through `cache` where there is one, or `borrowed` from site-packages.
    """
    folder = venv_folder(cell)
    wheel = context.only(f"wheel/{cell.name}")
    wanted = [f"lltm[examples] @ {wheel.as_uri()}", f"torch=={torch}", "numpy"]
    interpreter = make_venv(context.log, folder, python, wanted, cache=cache, borrowed=borrowed)
    report = run_installed(
        context.log,
        interpreter,
        folder,
        f"{cell.name}-venv",
        glue=cell.glue,
        gpu=cell.cuda_major is not None,
    )
    return [folder, report]


def digits(context: Context, *, cell: Cell) -> Sequence[Path]:
    """Trains the example in the virtual environment; its exit code says whether it learned."""
    out = fresh(BUILD / "digits" / cell.name)
    python = context.made[f"venv/{cell.name}"][0] / "bin" / "python"
    command = [python, REPO / "examples" / "digits.py", "--out", out]
    context.log.run(command, cwd=out, remedy="It must name at least 95 % of the held-out digits")
    return [out]
