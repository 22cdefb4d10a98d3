"""The release tool is tested from the checkout, as scripts/build_all.sh runs it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
HELPERS = ("torchship/doctor", "torchship/release", "torchship", "builds")
sys.path.insert(0, str(REPO))
sys.path[1:1] = [str(REPO / "tests" / name) for name in HELPERS]

pytest.importorskip("pydantic")
pytest.importorskip("ruamel.yaml")


@pytest.fixture(scope="session")
def matrix():
    from torchship.release.matrix.load import load

    return load(REPO / "build_matrix.yaml")


@pytest.fixture(scope="session")
def settings(matrix):
    """The settings of a run for the matrix's first platform, in this checkout."""
    from torchship.release.matrix.settings import make_settings

    return make_settings(matrix, REPO)


@pytest.fixture
def own_settings(settings, tmp_path):
    """The settings with folders `build` and `dist` of the test's own."""
    return replace(settings, build=tmp_path / "build", dist=tmp_path / "dist")


@pytest.fixture
def matrix_text() -> str:
    return (REPO / "build_matrix.yaml").read_text(encoding="utf-8")


@pytest.fixture
def log(tmp_path, own_settings):
    from torchship.release.run.shell import Log

    with Log(tmp_path / "logs" / "test.log", own_settings) as log:
        yield log


@pytest.fixture(scope="session")
def conda_worker(tmp_path_factory):
    """Runs a command line for the conda worker; returns what the worker prints."""
    cache = str(tmp_path_factory.mktemp("rattler"))

    def run(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LLTM_", "PYTHON"))}
        env |= {"PYTHONPATH": str(REPO), "LLTM_CONDA_LOAD": "0"}
        env |= {"RATTLER_CACHE_DIR": cache, **(variables or {})}
        process = subprocess.run(command, env=env, capture_output=True, text=True)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run


@pytest.fixture(scope="session")
def make_channels(matrix, settings, conda_worker):
    """Builds a recipe against stubs; returns the URLs of the channels with ours and the stubs."""
    from torchship.release.steps.conda import commands as conda_commands
    from torchship.release.steps.conda.stubs import stubs, write_channel

    # Something to pack, instead of compiling.
    script = 'mkdir -p "$SP_DIR/lltm_conda"\necho >"$SP_DIR/lltm_conda/__init__.py"\n'

    def make(folder: Path, recipe: Path = REPO / "recipe" / "recipe.yaml") -> tuple[str, str]:
        work = folder / "source" / "recipe"
        channel = folder / "channel"
        stubs_channel = write_channel(folder / "stubs", stubs(matrix)).as_uri()
        work.mkdir(parents=True)
        shutil.copy(REPO / "LICENSE", work.parent)
        (work / "build.sh").write_text(script)
        copy = Path(shutil.copy(recipe, work / "recipe.yaml"))
        # The host environments of CUDA variants hold a pytorch that needs a driver.
        env = {"CONDA_OVERRIDE_CUDA": "99", "LLTM_CONDA_GIT_COMMIT": "c" * 40}
        command = conda_commands.build(
            settings.variants, folder / "out", channels=[stubs_channel], recipe=copy
        )
        conda_worker(command, env)
        packages = list((folder / "out").glob("linux-64/*.conda"))
        conda_worker(conda_commands.index(channel, packages))
        return channel.as_uri(), stubs_channel

    return make


@pytest.fixture(scope="session")
def matrix_built(make_channels, tmp_path_factory) -> Path:
    """What the recipe gives for the whole matrix, built once for all processes of this run: the
    channel with ours in `channel`, and the stubs in `stubs`."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "matrix-built"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            make_channels(folder)
            (folder / "whole").touch()
    return folder


@pytest.fixture(scope="session")
def matrix_channels(matrix_built) -> tuple[str, str]:
    """The addresses of the two."""
    return (matrix_built / "channel").as_uri(), (matrix_built / "stubs").as_uri()
