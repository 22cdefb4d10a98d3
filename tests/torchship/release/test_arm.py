"""linux-aarch64: its cells, which run is for it, and what is compiled and checked for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from processes import clean_environment
from rendered_client import write_checkout
from shared_objects import KERNELS_RECORD, fake_torch, gpu_object, shared_object
from small_checkout import CHECKOUT, SETTINGS
from small_clients import REPO

from torchship.builder import BuildRequest, HostCompiler, find_host_compiler, plan
from torchship.judge import find_torch, read_binary
from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells, arch_list, by_platform, select
from torchship.release.matrix.load import load
from torchship.release.matrix.settings import make_settings, native_platform
from torchship.release.plan.machine import Host
from torchship.release.run.listing import json_list
from torchship.release.steps.compile import audit, emulation

ARM, X86 = "linux-aarch64", "linux-x86_64"
NATIVE = native_platform()
CELL = "stable210-cpu-aarch64"


@pytest.fixture(scope="module")
def arm(matrix):
    return matrix.on(ARM)


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
    settings = replace(make_settings(arm, CHECKOUT), native=X86)
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


DryRun = Callable[..., str]


@pytest.fixture
def dry_run(tmp_path) -> DryRun:
    """What a run for these cells would do in a checkout of the client, started in `folder`."""
    checkout = write_checkout(tmp_path / "checkout")

    def run(*selectors: str, folder: Path = checkout) -> str:
        env = clean_environment(RELEASE_PROJECT=str(checkout))
        env.pop("RELEASE_PLATFORM", None)
        program = REPO / "torchship" / "release" / "launch" / "run_module.py"
        options = ["--dry-run", "--channel", "bootstrap", *selectors]
        command = [sys.executable, str(program), "torchship.release", *options]
        process = subprocess.run(command, env=env, capture_output=True, text=True, cwd=folder)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run


@pytest.mark.slow
@crosses
def test_the_plan_of_a_cross_run(dry_run, tmp_path) -> None:
    """The same steps as here, after one for the Python; the slow ones are left out.

    Another checkout in the current folder is not run.
    """
    (tmp_path / "torchship").mkdir()
    (tmp_path / "torchship" / "__init__.py").write_text("raise SystemExit('another checkout')")
    cross = dry_run(CELL, "stable210-cu13-aarch64", folder=tmp_path)
    native = dry_run("stable210-cpu")
    steps = {line.split()[0] for line in cross.splitlines() if "for stable210" in line}
    kinds = ("venv", "wheel", "conda", "conda-test", "prefix")
    assert {"root", "toolkit/runtime-13.0", *(f"{kind}/{CELL}" for kind in kinds)} <= steps
    assert not [step for step in steps if step.startswith(("example/", "fat-run/"))]
    assert "root " not in native and "aarch64" not in native
