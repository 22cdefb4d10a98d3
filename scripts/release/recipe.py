"""Builds variants from source by the recipe alone, as conda-forge would."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from release import BUILD, REPO, ReleaseError, conda_worker
from release.cells import all_cells, select
from release.conda_steps import driver
from release.paths import BOOTSTRAP, fresh
from release.provenance import commit
from release.schema import Matrix
from release.shell import clean_env
from release.store import write_atomically
from release.variants import for_conda, render


def build_recipe(selector: str, matrix: Matrix, channel: str | None, console: Console) -> int:
    """Builds and tests the packages that `selector` names, beside a channel or the bootstrap one.

    Raises:
        ReleaseError: no package has that name, or one was not built; the text names it.
    """
    for cell in select([cell for cell in all_cells(matrix) if for_conda(cell)], [selector]):
        out = fresh(BUILD / "recipe" / cell.name)
        write_atomically(out / "variants.yaml", render([cell], matrix))
        command = _command(out, channel or BOOTSTRAP.as_uri())
        env = clean_env(PYTHONPATH=f"{REPO / 'scripts'}:{REPO}", **driver(cell))
        env["LLTM_GIT_COMMIT"] = commit()
        console.print(f"{cell.name}: {shlex.join(command)}", markup=False, soft_wrap=True)
        if subprocess.run(command, cwd=REPO, env=env).returncode:
            text = f"{cell.name}: its package was not built beside {channel or BOOTSTRAP}"
            raise ReleaseError(f"{text}; the lines above say why")
        for path in out.glob("linux-64/*.conda"):
            console.print(f"made {path}", markup=False, soft_wrap=True)
    return 0


def _command(out: Path, channel: str) -> list[str]:
    """conda's, where it can build; else the same by py-rattler-build."""
    variants, conda = str(out / "variants.yaml"), shutil.which("conda")
    if conda and not subprocess.run([conda, "build", "--version"], capture_output=True).returncode:
        words = ["build", "recipe", "-m", variants, "-c", channel, "--override-channels"]
        return [conda, *words, "--output-folder", str(out)]
    words = [conda_worker.__name__, "build", "--tests", variants, str(out), "--channel", channel]
    return [sys.executable, "-m", *words]
