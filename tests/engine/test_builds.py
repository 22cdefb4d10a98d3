"""Just in time and with CMake, the sources give the same operators; setuptools made the package."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow
REPO = Path(__file__).resolve().parents[2]
VARIABLES = (REPO / "project.env").read_text(encoding="utf-8")
PACKAGE = re.findall(r'^PROJECT_PACKAGE="(.*)"$', VARIABLES, re.MULTILINE)[0]
PROJECT = importlib.import_module(f"{PACKAGE}._project").PROJECT
# The op by its parts, against its definition, in this process: whatever registered it.
COMPARE = f"""
from {PACKAGE}.engine.runtime import live_run
from {PACKAGE} import smoke
print(live_run.difference(smoke.parts(), "cpu", "float64"))
"""


def run(*command: object, **environment: str) -> str:
    env = {**os.environ, PROJECT.variable("LOAD"): "0", "FORCE_CUDA": "0", **environment}
    env["DEBUG"] = "1"  # without optimisation it is built in a third of the time
    arguments = list(map(str, command))
    process = subprocess.run(arguments, env=env, cwd=REPO / "tests", capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_just_in_time(tmp_path: Path) -> None:
    pytest.importorskip(f"{PACKAGE}.jit")
    folder = tmp_path / "cache"
    code = f"import {PACKAGE}.jit\nprint({PACKAGE}.jit.load(build_directory={str(folder)!r}))"
    lines = run(sys.executable, "-c", code + COMPARE).splitlines()
    assert str(folder) in lines[0]
    assert float(lines[-1]) < 1e-12


def test_cmake(tmp_path: Path) -> None:
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake")
    prefix = torch.utils.cmake_prefix_path
    name = PROJECT.namespace
    folders = ["-S", REPO, "-B", tmp_path]
    options = [
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-D{name.upper()}_CUDA=OFF",
        "-DBUILD_TESTING=OFF",
        "-DCMAKE_BUILD_TYPE=Debug",
    ]
    run(cmake, *folders, *options)
    run(cmake, "--build", tmp_path, "--parallel", "2")
    code = f"import torch; torch.ops.load_library({str(tmp_path / f'lib{name}.so')!r})"
    assert float(run(sys.executable, "-c", code + COMPARE)) < 1e-12
