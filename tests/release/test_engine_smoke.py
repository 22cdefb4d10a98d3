"""scripts/engine_smoke.py runs torchship's smoke test for the installed package of this project."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from processes import Forks
from release_places import REPO

import lltm_conda

SCRIPT = REPO / "scripts" / "engine_smoke.py"


#: scripts/build_all.sh runs the script as well, with each package that it installs.
checks_gradients = pytest.mark.slow


@pytest.fixture(scope="module")
def facts(tmp_path_factory, forked) -> dict[str, object]:
    """What the script stores of the installed package, which passes."""
    folder = tmp_path_factory.mktemp("smoke")
    process = run_script(forked, "--json", folder / "facts.json", cwd=folder)
    assert process.returncode == 0, process.stdout
    facts: dict[str, object] = json.loads((folder / "facts.json").read_text())
    return facts


def run_script(forked: Forks, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    site = Path(lltm_conda.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(site)}
    return forked.program(SCRIPT, *map(str, arguments), cwd=cwd, env=env)


@checks_gradients
def test_the_installed_package_passes_and_its_gradients_are_checked(facts) -> None:
    assert facts["lltm"] == lltm_conda.__version__
    assert (facts["failed"], facts["gradcheck"]) == (0, True)


@checks_gradients
def test_every_dtype_is_compared_in_every_shape(facts) -> None:
    from lltm_conda import smoke

    pairs = {(entry["dtype"], tuple(entry["shape"])) for entry in facts["comparisons"]}
    dtypes = {dtype for dtype, _ in pairs}
    assert dtypes == {"float64", "float32", "float16", "bfloat16"}
    assert pairs == {(dtype, shape) for dtype in dtypes for shape in smoke.SHAPES}


def test_the_source_tree_is_not_what_is_meant(tmp_path, forked) -> None:
    process = run_script(forked, "--outside", Path(lltm_conda.__file__).parent, cwd=tmp_path)
    assert process.returncode == 1 and "not the installed one" in process.stdout
