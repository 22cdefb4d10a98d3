"""Renders and builds every variant of the recipe, without content, against stubs of conda-forge.

To a solver the resulting channel looks like the real one: the same names, build strings and
dependencies, with run_exports applied. It takes about two seconds, in a process of its own, because
the libraries read the environment and their cache only once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from release import REPO, ReleaseError
from release.cells import all_cells
from release.conda_stubs import write_channel
from release.matrix import load
from release.rattler_tools import build_recipe, index_channel
from release.variants import for_conda, render

RECIPE = REPO / "recipe" / "recipe.yaml"
# Something to pack, instead of compiling.
SCRIPT = 'mkdir -p "$SP_DIR/lltm_conda"\necho >"$SP_DIR/lltm_conda/__init__.py"\n'
# The host environments of CUDA variants hold a pytorch that needs a driver.
DRIVER = "99"


def build(folder: Path, recipe: Path) -> None:
    """Fills `folder/stubs` and `folder/channel`."""
    matrix = load()
    stubs = write_channel(folder / "stubs", matrix)
    work = folder / "source" / "recipe"
    work.mkdir(parents=True)
    shutil.copy(recipe, work / "recipe.yaml")
    (work / "build.sh").write_text(SCRIPT, encoding="utf-8")
    shutil.copy(REPO / "LICENSE", work.parent / "LICENSE")
    variants = work / "variants.yaml"
    cells = [cell for cell in all_cells(matrix) if for_conda(cell)]
    variants.write_text(render(cells, matrix), encoding="utf-8")
    made = build_recipe(
        work / "recipe.yaml", out=folder / "out", channels=[stubs.as_uri()], variants=variants
    )
    channel = folder / "channel"
    (channel / "linux-64").mkdir(parents=True)
    for path in made:
        shutil.move(path, channel / "linux-64" / path.name)
    index_channel(channel)


def make_channels(folder: Path, recipe: Path = RECIPE) -> tuple[str, str]:
    """Builds both channels in a new process; returns the URLs of ours and of the stubs.

    Raises:
        ReleaseError: the recipe cannot be rendered, solved or built; the text says why.
    """
    command = [sys.executable, "-m", "release.conda_worker", "matrix", folder, recipe]
    env = {**os.environ, "PYTHONPATH": f"{REPO / 'scripts'}:{REPO}", "LLTM_CONDA_LOAD": "0"}
    env |= {"RATTLER_CACHE_DIR": str(folder / "cache"), "CONDA_OVERRIDE_CUDA": DRIVER}
    for name in ("LLTM_CONDA_PREBUILT", "LLTM_CONDA_GLIBC"):
        env.pop(name, None)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"{recipe}: cannot be built against stubs:\n{done.stdout}{done.stderr}")
    return (folder / "channel").as_uri(), (folder / "stubs").as_uri()
