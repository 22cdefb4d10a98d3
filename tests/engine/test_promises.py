"""What the engine promises to whichever project project.env names."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Forks

REPO = Path(__file__).resolve().parents[2]
VARIABLES = (REPO / "project.env").read_text(encoding="utf-8")
PACKAGE = re.findall(r'^PROJECT_PACKAGE="(.*)"$', VARIABLES, re.MULTILINE)[0]
PROJECT = importlib.import_module(f"{PACKAGE}._project").PROJECT
read_binary = importlib.import_module(f"{PACKAGE}.engine.judge").read_binary
BINARIES = sorted((PROJECT.folder / "lib").glob("*.so"))


def python(code: str, cwd: Path, **environment: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.name)
def test_a_binary_says_whose_it_is_and_needs_no_python(path: Path) -> None:
    binary = read_binary(path)
    assert binary.record is not None
    assert (binary.record.package, binary.record.version) == (PROJECT.distribution, PROJECT.version)
    assert binary.python_symbols == ()


def test_the_checker_needs_no_torch(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['torch'] = None; import {PACKAGE}.engine.judge"
    python(code, tmp_path, **{PROJECT.variable("LOAD"): "0"})


def test_an_import_registers_the_operators(tmp_path: Path, forked: Forks) -> None:
    name = f"{PROJECT.namespace}.{PROJECT.operator}"
    code = f"import torch, {PACKAGE}; print(torch.ops.{name})"
    assert PROJECT.operator in forked.run(code, cwd=tmp_path, env=dict(os.environ)).stdout


def test_a_forced_variant_that_is_not_there_is_named(tmp_path: Path, forked: Forks) -> None:
    variable = PROJECT.variable("VARIANT")
    code = f"try: import {PACKAGE}\nexcept ImportError as error: print(error)"
    env = {**os.environ, variable: "stable299-cpu"}
    output = forked.run(code, cwd=tmp_path, env=env).stdout
    assert output.startswith(f"{PROJECT.distribution} cannot be loaded: ")
    assert "stable299" in output


def test_generated_files_are_what_the_matrix_says() -> None:
    pytest.importorskip("ruamel.yaml")
    code = (
        "from torchship.release.matrix import generated, load;"
        "print(list(generated.drifted(load.load_settings())))"
    )
    assert python(code, REPO, PYTHONPATH=str(REPO)) == "[]\n"
