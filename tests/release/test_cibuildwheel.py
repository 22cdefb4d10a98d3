"""cibuildwheel would build what the matrix says, and its steps work outside a container too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from release_places import REPO

from torchship.release import ReleaseError
from torchship.release.matrix import cibuildwheel

tomllib = pytest.importorskip("tomllib")  # Python 3.11

PROJECT = REPO / "pyproject.toml"
STEPS = REPO / "scripts" / "cibuildwheel.sh"


def settings() -> dict:
    return tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["cibuildwheel"]


def test_the_identifiers_are_those_of_the_matrix(matrix, tmp_path) -> None:
    pytest.importorskip("cibuildwheel")
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"]
    process = subprocess.run(
        [*command, "--platform", "linux", REPO], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    tag = "cp" + cibuildwheel.python(matrix).replace(".", "")
    assert process.stdout.split() == [f"{tag}-manylinux_x86_64", f"{tag}-manylinux_aarch64"]


def test_every_torch_has_a_wheel_for_the_python_that_builds(matrix) -> None:
    python = cibuildwheel.python(matrix)
    assert [m for m, torch in matrix.torch.items() if python not in torch.pythons] == []


def test_the_image_carries_the_nvcc_that_pypi_lacks(matrix) -> None:
    (lacking,) = [name for name, toolkit in matrix.toolkits.items() if not toolkit.nvcc]
    assert settings()["manylinux-x86_64-image"].endswith(f"manylinux2_28-builder:cuda{lacking}")
    kernels = {entry.toolkit for entry in matrix.kernels.values() if entry.toolkit}
    assert kernels - {lacking} == {n for n, t in matrix.toolkits.items() if t.nvcc} & kernels


def test_two_toolkits_without_nvcc_are_refused(matrix) -> None:
    lacking = {n: t.model_copy(update={"nvcc": False}) for n, t in matrix.toolkits.items()}
    with pytest.raises(ReleaseError, match=r"12\.8 nor 13\.0"):
        cibuildwheel.image(matrix.model_copy(update={"toolkits": lacking}))


@pytest.mark.parametrize("name", ["before-all", "before-build", "repair-wheel-command"])
def test_every_step_is_the_script(name) -> None:
    command = settings()[name].split()
    assert command[0] == "{project}/scripts/cibuildwheel.sh"
    assert command[1] in STEPS.read_text(encoding="utf-8")
    assert os.access(STEPS, os.X_OK)


def test_an_unknown_step_is_refused() -> None:
    process = subprocess.run([STEPS, "after-all"], capture_output=True, text=True)
    assert process.returncode == 2
    assert "after-all" in process.stderr


@pytest.mark.slow
@pytest.mark.network
def test_the_steps_make_a_wheel_that_runs(tmp_path) -> None:
    """Everything but the container: the same commands in the same order, for one cell."""
    tree = tmp_path / "project"
    out = tmp_path / "out"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=REPO, capture_output=True
    ).stdout.split(b"\0")
    for name in filter(None, names):
        source = REPO / os.fsdecode(name)
        target = tree / os.fsdecode(name)
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    prebuilt = tmp_path / "binaries"
    env = {**os.environ, "LLTM_CONDA_PREBUILT": str(prebuilt), "HOME": str(tmp_path)}
    env = {k: v for k, v in env.items() if k not in ("PYTHONPATH", "LLTM_CONDA_LOAD", "PYTHON")}
    script = tree / "scripts" / "cibuildwheel.sh"

    def run(*command: object) -> str:
        process = subprocess.run(
            [str(word) for word in command], cwd=tree, env=env, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    run(script, "before-all", "stable210-cpu")
    assert {p.name for p in prebuilt.iterdir()} == {"glue-stable210.so", "kernels-cpu.so"}
    run(script, "before-build")
    pip = [sys.executable, "-m", "pip"]
    wheel_options = ["--no-deps", "--no-build-isolation", "-w", out]
    run(*pip, "wheel", *wheel_options, ".")
    (wheel,) = out.glob("*.whl")
    run(script, "repair", wheel, tmp_path / "repaired")
    (final,) = (tmp_path / "repaired").glob("*.whl")
    assert "+partial.1of" in final.name and "-py3-none-manylinux_" in final.name
    with ZipFile(final) as archive:
        packed = {n for n in archive.namelist() if n.endswith(".so")}
    assert {Path(n).name for n in packed} == {"glue-stable210.so", "kernels-cpu.so"}
    site = tmp_path / "site"
    install_options = ["-q", "--no-deps", "--target", site]
    run(*pip, "install", *install_options, final)
    env["PYTHONPATH"] = str(site)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    assert "0 failed" in run(script, "test")
