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


def run_installed(log: Log, python: Path, folder: Path, name: str) -> Path:
    """Explains itself, then computes; from an empty folder, so that no source tree is seen."""
    empty = fresh(TEMPORARY / "run" / name)
    env = clean_env(PATH=f"{folder / 'bin'}:{clean_env()['PATH']}")
    log.run([python, "-m", "lltm_conda"], env=env, cwd=empty)
    report = BUILD / "smoke" / f"{name}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    log.run([python, SMOKE, "--outside", REPO / "lltm_conda", "--json", report], env=env, cwd=empty)
    return report


def venv(context: Context, *, cell: Cell, python: str, torch: str) -> Sequence[Path]:
    """A new virtual environment with the wheel, in which it is run."""
    folder = ENVS / f"{cell.name}-venv"
    wheel = context.only(f"wheel/{cell.name}")
    wanted = [f"lltm[examples] @ {wheel.as_uri()}", f"torch=={torch}", "numpy"]
    interpreter = make_venv(context.log, folder, python, wanted)
    run_installed(context.log, interpreter, folder, f"{cell.name}-venv")
    return [folder]


def digits(context: Context, *, cell: Cell) -> Sequence[Path]:
    """Trains the example in the virtual environment; its exit code says whether it learned."""
    out = fresh(BUILD / "digits" / cell.name)
    python = context.only(f"venv/{cell.name}") / "bin" / "python"
    command = [python, REPO / "examples" / "digits.py", "--out", out]
    context.log.run(command, cwd=out, remedy="It must name at least 95 % of the held-out digits")
    return [out]
