"""The release tool is tested from the checkout, as scripts/build_all.sh runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO))
sys.path[1:1] = [str(REPO / "tests" / name) for name in ("compat", "builds")]  # their helpers

pytest.importorskip("pydantic")
pytest.importorskip("ruamel.yaml")


@pytest.fixture(scope="session")
def matrix():
    from torchship.release.matrix import load

    return load()


@pytest.fixture
def matrix_text() -> str:
    return (REPO / "build_matrix.yaml").read_text(encoding="utf-8")


@pytest.fixture
def log(tmp_path):
    from torchship.release.shell import Log

    with Log(tmp_path / "logs" / "test.log") as log:
        yield log


@pytest.fixture(scope="session")
def conda_worker(tmp_path_factory):
    """Runs a command of `release.conda_worker` in a process of its own; returns its output."""
    cache = str(tmp_path_factory.mktemp("rattler"))

    def run(name: str, extra: dict[str, str] | None = None, **arguments: object) -> str:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LLTM_", "PYTHON"))}
        env |= {"PYTHONPATH": str(REPO), "LLTM_CONDA_LOAD": "0"}
        command = [sys.executable, "-m", "torchship.release.conda_worker", name]
        command.append(json.dumps(arguments, default=str))
        env |= {"RATTLER_CACHE_DIR": cache, **(extra or {})}
        process = subprocess.run(command, env=env, capture_output=True, text=True)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run


@pytest.fixture(scope="session")
def make_channels(matrix, conda_worker):
    """Builds a recipe against stubs; returns the URLs of the channels with ours and the stubs."""
    from torchship.release.cells import VARIANTS_FILE
    from torchship.release.conda_stubs import stubs, write_channel

    # Something to pack, instead of compiling.
    script = 'mkdir -p "$SP_DIR/lltm_conda"\necho >"$SP_DIR/lltm_conda/__init__.py"\n'

    def make(folder: Path, recipe: Path = REPO / "recipe" / "recipe.yaml") -> tuple[str, str]:
        work = folder / "source" / "recipe"
        channel = folder / "channel"
        stubs_channel = write_channel(folder / "stubs", stubs(matrix)).as_uri()
        work.mkdir(parents=True)
        shutil.copy(REPO / "LICENSE", work.parent)
        (work / "build.sh").write_text(script)
        copy = shutil.copy(recipe, work / "recipe.yaml")
        # The host environments of CUDA variants hold a pytorch that needs a driver.
        env = {"CONDA_OVERRIDE_CUDA": "99", "LLTM_CONDA_GIT_COMMIT": "c" * 40}
        arguments = {"variants": VARIANTS_FILE, "out": folder / "out", "recipe": copy}
        conda_worker("build", env, **arguments, channels=[stubs_channel])
        packages = list((folder / "out").glob("linux-64/*.conda"))
        conda_worker("index", channel=channel, packages=packages)
        return channel.as_uri(), stubs_channel

    return make
