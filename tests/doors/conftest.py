"""Both doors to torch, compiled against the installed torch, each in a package of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from processes import Forks

import lltm_conda
from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import BuildRequest, execute, plan
from lltm_conda.engine.builder.request import FIRST_STABLE
from lltm_conda.engine.judge.machine.torch_probe import find_torch
from lltm_conda.engine.judge.records import GlueName, file_name


class Door:
    """A copy of the installed package that holds one glue only."""

    def __init__(self, name: str, site: Path, forked: Forks):
        self.name = name
        self.site = site
        self.forked = forked

    def run(self, code: str, **environment: str) -> str:
        """The output of `code` in a process of its own, with this door's package first."""
        env = {**os.environ, "PYTHONPATH": str(self.site), **environment}
        env.pop("LLTM_CONDA_VARIANT", None)
        run = self.forked.run(code, cwd=self.site, env=env)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout


OpenDoor = Callable[[str], Door]


@pytest.fixture(scope="session")
def open_door(tmp_path_factory: pytest.TempPathFactory, forked: Forks) -> OpenDoor:
    """Makes the package of the stable or the ATen door once, with the same kernels."""
    facts = find_torch(Path(torch.__file__).parent)
    if facts.version_tuple < FIRST_STABLE:
        pytest.skip(f"torch {facts.version} has the ATen door only; both exist from 2.10 on")
    assert facts.cxx11_abi is not None
    glues = {
        "stable": GlueName("stable", FIRST_STABLE),
        "aten": GlueName("aten", facts.version_tuple, facts.cxx11_abi),
    }
    root = tmp_path_factory.mktemp("doors")
    installed = Path(lltm_conda.__file__).parent

    @cache
    def make(door: str) -> Door:
        name = glues[door]
        site = root / door
        # Kernels come from the installed package, for both alike; so does a glue that is there.
        other = shutil.ignore_patterns("glue-*.so")
        shutil.copytree(installed, site / "lltm_conda", ignore=other)
        glue = installed / "lib" / file_name(name)
        if not glue.is_file():
            request = BuildRequest(
                project=PROJECT,
                out_dir=root / "build",
                glue=str(name),
                torch=facts,
                kernels=(),
                env={**os.environ, "DEBUG": "1"},  # the kernels compute, not the glue
            )
            execute(plan(request), root / "build", jobs=2, log=lambda line: None)
            glue = root / "build" / glue.name
        shutil.copy2(glue, site / "lltm_conda" / "lib")
        return Door(str(name), site, forked)

    return make
