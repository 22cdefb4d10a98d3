"""linux-aarch64: its cells, which run is for it, and a cross build that is run under qemu."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from checkout import SETTINGS
from own_facts import KERNELS_RECORD
from shared_objects import fake_torch, gpu_object, shared_object

from torchship.builder import (
    BuildRequest,
    HostCompiler,
    execute,
    find_host_compiler,
    plan,
)
from torchship.doctor import find_torch, read_binary
from torchship.doctor.checks.cuda import runs_on
from torchship.release import ReleaseError, audit, emulation
from torchship.release.cells import all_cells, arch_list, by_platform, required, select
from torchship.release.host import Host
from torchship.release.listing import json_list
from torchship.release.matrix import load
from torchship.release.settings import make_settings, native_platform

REPO = Path(__file__).resolve().parents[2]
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


def test_x86_does_not_change_for_arm(matrix, arm) -> None:
    assert not [cell.name for cell in all_cells(matrix) if "aarch64" in cell.name]
    assert arm.on(X86) is matrix
    assert matrix.kernels["cuda13"].archs != arm.kernels["cuda13"].archs
    assert "8.7" in arch_list(arm.kernels["cuda13"].archs)


def test_every_gpu_of_a_torch_for_arm_finds_machine_code(arm) -> None:
    """Also Orin (8.7), and the DGX Spark (12.1) by the code of 12.0."""
    archs = tuple(arm.kernels["cuda13"].archs)
    numbers = {n for torch in arm.torch.values() if torch.cuda for n in torch.cuda.archs}
    assert numbers == {80, 90, 100, 110, 120}
    for number in (*numbers, 87, 103, 121):
        assert runs_on(archs, divmod(number, 10)) == "code", number


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
    assert by_platform(selectors, matrix, NATIVE) == groups


@pytest.mark.parametrize(
    ("selector", "count"),
    [(CELL, 1), ("stable210-cpu", 1), ("stable*-aarch64", 2), ("aten*", 8), ("all", 10)],
)
def test_selectors_with_and_without_the_platform(arm, selector, count) -> None:
    assert len(select(all_cells(arm), [selector])) == count


def test_a_compiler_for_another_platform_is_no_compiler(matrix, settings) -> None:
    gxx = HostCompiler(("g++",), "g++", "12.2.0", "riscv64")
    host = Host("python3", "3.11", None, gxx)
    for cell in json.loads(json_list(all_cells(matrix), host, settings))["cells"]:
        assert "compiles for linux-riscv64" in cell["reason"]
    native = replace(host, compiler=replace(gxx, machine=NATIVE.removeprefix("linux-")))
    (cell,) = select(all_cells(matrix), ["stable210-cpu"])
    assert json.loads(json_list([cell], native, settings))["cells"][0]["buildable"]


def test_what_is_missing_is_named(arm, monkeypatch) -> None:
    settings = replace(make_settings(arm, REPO), native=X86)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    problem = emulation.missing(None, settings)
    assert "no aarch64-linux-gnu-g++ and no qemu-aarch64" in problem
    assert "apt-get install g++-aarch64-linux-gnu qemu-user" in problem
    assert f"on a {ARM} machine" in problem


def test_a_mistake_in_what_differs_is_found_at_its_line(matrix_text, tmp_path) -> None:
    old = '"2.6": {cuda: null, aten: [cpu], abi: {pypi: 1}}'
    assert old in matrix_text
    number = 1 + matrix_text[: matrix_text.index(old)].count("\n")
    path = tmp_path / "matrix.yaml"
    for new, expected in (("abi: {pypi: 0}", "C++11 ABI 1, got 0"), ("abi: {pypi: 5}", "0 or 1")):
        path.write_text(matrix_text.replace(old, old.replace("abi: {pypi: 1}", new)))
        with pytest.raises(ReleaseError) as error:
            load(path)
        assert f"matrix.yaml:{number}:" in str(error.value)
        assert expected in str(error.value)
    path.write_text(matrix_text)
    with pytest.raises(ReleaseError, match="has no platform linux-ppc64le"):
        load(path, "linux-ppc64le")


def test_a_compiler_says_its_machine(tmp_path) -> None:
    script = tmp_path / "other-g++"
    answer = "case $1 in -dumpmachine) echo arm64-apple;; *) echo 'g++ (X) 13.1.0';; esac"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    compiler = find_host_compiler({**os.environ, "CXX": str(script)})
    assert (compiler.version, compiler.machine) == ("13.1.0", "aarch64")
    own = find_host_compiler({name: v for name, v in os.environ.items() if name != "CXX"})
    assert f"linux-{own.machine}" == NATIVE


def test_the_audit_stops_another_platform_and_small_pages(arm, tmp_path) -> None:
    (cell,) = select(all_cells(arm), [CELL])
    record = read_binary(shared_object(tmp_path / "kernels-cpu.so", record=KERNELS_RECORD))
    message = f"is built for {X86}, the cell needs {ARM}"
    assert any(message in problem for problem in audit.record_problems(record, cell))
    ours = record._replace(platform=ARM, alignment=4096)
    assert any(
        "aligned to 4096 bytes, pages have up to 65536" in t
        for t in audit.record_problems(ours, cell)
    )
    assert list(audit.record_problems(ours._replace(alignment=65536), cell)) == []


@pytest.mark.parametrize(("compiler", "linked"), [("g++", False), ("clang", True)])
def test_glue_brings_no_openmp_runtime_beside_torchs(compiler, linked, tmp_path: Path) -> None:
    """Torch 2.4 and 2.5 for Arm have theirs under a name of its own."""
    answer = f"[ $1 = -dumpmachine ] && echo aarch64-linux-gnu || echo '{compiler} version 19.1.0'"
    script = tmp_path / "cxx"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    env = {**os.environ, "CXX": str(script)}
    project = SETTINGS.project
    torch = find_torch(fake_torch(tmp_path, "2.5.1", abi=0).parent)
    request = BuildRequest(
        out_dir=tmp_path, project=project, glue="aten25-abi0", torch=torch, kernels=(), env=env
    )
    *compiled, link = plan(request)
    assert any("-fopenmp" in step.command for step in compiled)
    assert ("-fopenmp" in link.command) is linked


CUDA_RECORD = {**KERNELS_RECORD, "name": "cuda13", "device": "cuda", "cuda": "13.0"}


def image(private: str = "01234567", code: str = "SASS") -> bytes:
    """The machine code of a source with something private, named as nvcc does."""
    return f".text._GLOBAL__N__{private}_5_cells_cu_{private}10give {code}".encode()


@pytest.mark.parametrize(
    ("other", "commit", "message", "differ"),
    [
        (image(), "a", f"for sm_90, sm_100 is that of {X86}'s build", []),
        (image("89abcdef"), "a", f"for sm_90, sm_100 is that of {X86}'s build", []),
        (zstandard.compress(image()), "a", f"for sm_90, sm_100 is that of {X86}'s build", []),
        (image(code="sass"), "a", "for no architecture is", ["sm_90", "sm_100"]),
        (image(code="sass"), "b", "no build of this commit", []),
    ],
)
def test_gpu_code_is_compared_with_that_of_the_other_platform(
    other, commit, message, differ, tmp_path
) -> None:
    """For the architectures that both have; nvcc may say something else in PTX."""
    record = {**CUDA_RECORD, "git_commit": "a"}
    codes = [(2, 87, 0), (2, 90, 0), (2, 100, 0), (1, 120, 0)]
    ours = gpu_object(tmp_path / "ours.so", codes, {**record, "platform": ARM}, image())
    named = {**record, "git_commit": commit}
    theirs = gpu_object(tmp_path / "theirs.so", codes[1:], named, other)
    comparison, is_different = audit.compare(ours, theirs)
    assert message in comparison
    assert is_different == differ
    assert "no build of this commit" in audit.compare(ours, tmp_path / "none.so")[0]


NEEDS = "no cross compiler or no qemu: run scripts/test_env.sh --cross"
crosses = pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64")), reason=NEEDS
)


def dry_run(*selectors: str, folder: Path = REPO) -> str:
    env = {**os.environ, "RELEASE_PROJECT": str(REPO), "LLTM_CONDA_LOAD": "0"}
    env.pop("RELEASE_PLATFORM", None)
    options = ["--dry-run", "--channel", "bootstrap", *selectors]
    command = [
        sys.executable,
        str(REPO / "torchship" / "release" / "launch" / "run_module.py"),
        "torchship.release",
        *options,
    ]
    process = subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder)
    assert process.returncode == 0, process.stderr
    return process.stdout


@crosses
def test_another_checkout_in_the_current_folder_is_not_run(tmp_path) -> None:
    (tmp_path / "torchship.release.py").write_text("raise SystemExit('another checkout')")
    assert CELL in dry_run(CELL, folder=tmp_path)


@crosses
def test_the_plan_of_a_cross_run() -> None:
    """The same steps as here, after one for the Python; the slow ones are left out."""
    cross = dry_run(CELL, "stable210-cu13-aarch64")
    native = dry_run("stable210-cpu")
    steps = {line.split()[0] for line in cross.splitlines() if "for stable210" in line}
    kinds = ("venv", "wheel", "conda", "conda-test", "prefix")
    assert {"root", "toolkit/runtime-13.0", *(f"{kind}/{CELL}" for kind in kinds)} <= steps
    assert not [step for step in steps if step.startswith(("digits/", "fat-run/"))]
    assert "root " not in native and "aarch64" not in native


@pytest.mark.slow
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
