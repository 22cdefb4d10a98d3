"""The package for linux-aarch64: its cells, and a cross build that is run under qemu."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from checkout import SETTINGS
from release_places import REPO

from torchship.builder import BuildRequest, execute, plan
from torchship.judge import find_torch
from torchship.judge.rules.cuda import runs_on
from torchship.release.matrix.cells import all_cells, required
from torchship.release.matrix.settings import native_platform

ARM, X86 = "linux-aarch64", "linux-x86_64"
NATIVE = native_platform()
CELL = "stable210-cpu-aarch64"


@pytest.fixture(scope="module")
def arm(matrix):
    return matrix.on(ARM)


def test_the_cells_of_arm(arm) -> None:
    """CPU builds up to torch 2.9, the C++ ABI as measured; CUDA 13 by the stable glue."""
    assert [c.name.removesuffix("-aarch64") for c in all_cells(arm)] == [
        *("stable210-cpu", "stable210-cu13", "aten24-abi0-cpu", "aten24-abi1-cpu"),
        *("aten25-abi0-cpu", "aten25-abi1-cpu", "aten26-abi1-cpu", "aten27-abi1-cpu"),
        *("aten28-abi1-cpu", "aten29-abi1-cpu"),
    ]
    assert all(cell.name.endswith("-aarch64") for cell in all_cells(arm))
    assert len(required(arm)) == 8


def test_every_gpu_of_a_torch_for_arm_finds_machine_code(arm) -> None:
    """Also Orin (8.7), and the DGX Spark (12.1) by the code of 12.0."""
    archs = tuple(arm.kernels["cuda13"].archs)
    numbers = {n for torch in arm.torch.values() if torch.cuda for n in torch.cuda.archs}
    assert numbers == {80, 90, 100, 110, 120}
    for number in (*numbers, 87, 103, 121):
        assert runs_on(archs, divmod(number, 10)) == "code", number


NEEDS = "no cross compiler or no qemu: run scripts/test_env.sh --cross"
crosses = pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64")), reason=NEEDS
)


@pytest.mark.rehearsal
@pytest.mark.skipif(NATIVE != X86, reason="the cross build is tried on x86-64")
@crosses
def test_the_stable_cpu_cell_is_built_here_and_runs_under_qemu(tmp_path) -> None:
    process = subprocess.run(
        ["scripts/build_all.sh", CELL, "--channel", "bootstrap"],
        cwd=REPO,
        env={name: value for name, value in os.environ.items() if name != "RELEASE_PLATFORM"}
        | {"PYTHON": sys._base_executable},
        capture_output=True,
        text=True,
    )
    if process.returncode and "root: `apt-get" in process.stdout:
        pytest.skip("Debian's arm64 packages are not in reach: build/linux-aarch64/logs/root.log")
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
    manifest = json.loads((REPO / "dist" / ARM / "manifest.json").read_text("utf-8"))
    cell = manifest["cells"][CELL]
    assert cell["state"] == "done"
    assert {run["kind"]: run["ran"] for run in cell["runs"]} == {"venv": True, "conda": True}
    assert all(run["facts"]["failed"] == 0 for run in cell["runs"])
    assert "channel/linux-aarch64/" in cell["conda"]
    assert cell["wheel"].endswith("_aarch64.whl")
    (host,) = manifest["hosts"].values()
    assert "runs under qemu-aarch64" in host["system"]
    records = [manifest["binaries"][name]["record"] for name in cell["binaries"]]
    assert {record["platform"] for record in records} == {ARM}
    # The same bytes in another folder.
    torch = find_torch(next((REPO / "build" / ARM / "headers").glob("torch-*")))
    project = SETTINGS.project
    env = {**os.environ, "CXX": "aarch64-linux-gnu-g++"}
    request = BuildRequest(
        out_dir=tmp_path, project=project, glue="stable210", torch=torch, kernels=(), env=env
    )
    execute(plan(request), tmp_path / "objects")
    again = hashlib.sha256((tmp_path / "glue-stable210.so").read_bytes()).hexdigest()
    assert again == manifest["binaries"]["glue-stable210.so"]["sha256"]
