"""linux-aarch64: its cells, which run is for it, and a cross build that is run under qemu."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from release import NATIVE, emulation
from release.cells import all_cells, by_platform, required, select
from release.host import Host
from release.listing import json_list
from release.matrix import MatrixError, load
from release.variants import arch_list

from lltm_conda.engine.builder import HostCompiler, find_host_compiler

REPO = Path(__file__).resolve().parents[2]
ARM, X86 = "linux-aarch64", "linux-x86_64"
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


def test_x86_does_not_change_for_arm(matrix, arm) -> None:
    assert not [cell.name for cell in all_cells(matrix) if "aarch64" in cell.name]
    assert arm.on(X86) is matrix
    assert matrix.kernels["cuda13"].archs != arm.kernels["cuda13"].archs
    assert "8.7" in arch_list(arm.kernels["cuda13"].archs)


@pytest.mark.parametrize(
    ("selectors", "groups"),
    [
        ([], {}),
        (["host", "stable*"], {NATIVE: ["host", "stable*"]}),
        ([CELL], {ARM: [CELL]}),
        (["*-aarch64", "stable210-cpu"], {ARM: ["*-aarch64"], NATIVE: ["stable210-cpu"]}),
        (["all"], {X86: ["all"], ARM: ["all"]}),
    ],
)
def test_a_run_is_for_arm_only_where_it_was_asked_for(matrix, selectors, groups) -> None:
    assert by_platform(selectors, matrix) == groups


@pytest.mark.parametrize(
    ("selector", "count"),
    [(CELL, 1), ("stable210-cpu", 1), ("stable*-aarch64", 2), ("aten*", 8), ("all", 10)],
)
def test_selectors_with_and_without_the_platform(arm, selector, count) -> None:
    assert len(select(all_cells(arm), [selector])) == count


def test_a_compiler_for_another_platform_is_no_compiler(matrix) -> None:
    gxx = HostCompiler(("g++",), "g++", "12.2.0", "riscv64")
    host = Host("python3", "3.11", None, gxx)
    for cell in json.loads(json_list(all_cells(matrix), host, matrix))["cells"]:
        assert "compiles for linux-riscv64" in cell["reason"]
    native = replace(host, compiler=replace(gxx, machine=NATIVE.removeprefix("linux-")))
    (cell,) = select(all_cells(matrix), ["stable210-cpu"])
    assert json.loads(json_list([cell], native, matrix))["cells"][0]["buildable"]


def test_what_is_missing_is_named(monkeypatch) -> None:
    monkeypatch.setattr(emulation, "FOREIGN", ARM)
    monkeypatch.setattr(emulation, "PLATFORM", ARM)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    found = emulation.missing(None)
    assert f"no {emulation.GXX} and no {emulation.QEMU}" in found
    assert f"apt-get install {emulation.PACKAGES}" in found
    assert f"on a {ARM} machine" in found


def test_a_mistake_in_what_differs_is_found_at_its_line(matrix_text, tmp_path) -> None:
    old = '"2.6": {cuda: null, aten: [cpu], abi: {pypi: 1}}'
    assert old in matrix_text
    number = 1 + matrix_text[: matrix_text.index(old)].count("\n")
    path = tmp_path / "matrix.yaml"
    for new, needed in (("abi: {pypi: 0}", "C++11 ABI 1, got 0"), ("abi: {pypi: 5}", "0 or 1")):
        path.write_text(matrix_text.replace(old, old.replace("abi: {pypi: 1}", new)))
        with pytest.raises(MatrixError) as error:
            load(path)
        assert f"matrix.yaml:{number}:" in str(error.value)
        assert needed in str(error.value)
    path.write_text(matrix_text)
    with pytest.raises(MatrixError, match="no platform is linux-ppc64le"):
        load(path, "linux-ppc64le")


def test_a_compiler_says_its_machine(tmp_path) -> None:
    script = tmp_path / "other-g++"
    answer = "case $1 in -dumpmachine) echo arm64-apple;; *) echo 'g++ (X) 13.1.0';; esac"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    found = find_host_compiler({**os.environ, "CXX": str(script)})
    assert (found.version, found.machine) == ("13.1.0", "aarch64")
    own = find_host_compiler({name: v for name, v in os.environ.items() if name != "CXX"})
    assert f"linux-{own.machine}" == NATIVE


@pytest.mark.slow
@pytest.mark.skipif(NATIVE != X86, reason="the cross build is tried on x86-64")
@pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64")),
    reason="apt-get install g++-aarch64-linux-gnu qemu-user",
)
def test_the_stable_cpu_cell_is_built_here_and_runs_under_qemu() -> None:
    done = subprocess.run(
        ["scripts/build_all.sh", CELL, "--channel", "bootstrap"],
        cwd=REPO,
        env={name: value for name, value in os.environ.items() if name != "RELEASE_PLATFORM"}
        | {"PYTHON": sys._base_executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    made = json.loads((REPO / "dist" / ARM / "manifest.json").read_text("utf-8"))
    cell = made["cells"][CELL]
    assert cell["state"] == "done"
    assert {run["kind"]: run["ran"] for run in cell["runs"]} == {"venv": True}
    assert all(run["facts"]["failed"] == [] for run in cell["runs"])
    assert cell["wheel"].endswith("_aarch64.whl")
    (host,) = made["hosts"].values()
    assert "runs under qemu-aarch64" in host["system"]
    records = [made["binaries"][name]["record"] for name in cell["binaries"]]
    assert {record["platform"] for record in records} == {ARM}
