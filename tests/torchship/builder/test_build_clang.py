"""CUDA by clang, planned with a clang and a ptxas that only say what they know."""

from __future__ import annotations

from pathlib import Path

import pytest
from rendered_client import PROJECT

from torchship.builder import BuildRequest, ClangToolkit, Step, plan

KNOWS = "sm_70 sm_75 sm_80 sm_90 sm_90a"
ASSEMBLES = "'sm_75','sm_80','sm_90','sm_90a','sm_100','sm_120'"


def program(path: Path, output: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def toolkit(tmp_path: Path) -> ClangToolkit:
    clang = program(tmp_path / "clang++", f"Debian clang version 19.1.7\n{KNOWS}")
    program(tmp_path / "cuda" / "bin" / "ptxas", ASSEMBLES)
    return ClangToolkit(str(clang), tmp_path / "cuda", (12, 8))


def steps(toolkit: ClangToolkit, out: Path, archs: str, **options: object) -> list[Step]:
    request = BuildRequest(
        project=PROJECT,
        out_dir=out,
        kernels=("cuda12",),
        env={},
        cuda=toolkit,
        architectures=archs,
        **options,
    )
    return plan(request)


def test_it_says_its_version(toolkit: ClangToolkit) -> None:
    assert toolkit.name == "clang++ 19.1.7"


def test_ptxas_adds_architectures_that_clang_does_not_know(toolkit: ClangToolkit) -> None:
    assert toolkit.native == {"75", "80", "90", "90a"}
    assert toolkit.architectures() == {"75", "80", "90", "100", "120"}


def test_later_architectures_are_assembled_from_the_newest_ptx(toolkit: ClangToolkit) -> None:
    flags = toolkit.flags(["sm_80", "sm_90", "sm_120", "compute_120"])
    assert "--cuda-gpu-arch=sm_80" in flags and "--cuda-gpu-arch=sm_120" not in flags
    assert "--cuda-include-ptx=sm_90" in flags and "--assemble=sm_120" in flags
    assert not [flag for flag in flags if flag.startswith("--drop")]


def test_what_is_only_a_step_to_another_is_dropped(toolkit: ClangToolkit) -> None:
    flags = toolkit.flags(["sm_80", "sm_120"])
    assert "--cuda-gpu-arch=sm_90" in flags
    assert {"--assemble=sm_120", "--drop=sm_90", "--drop=compute_90"} <= {*flags}


def test_the_record_says_what_was_made(toolkit: ClangToolkit, tmp_path: Path) -> None:
    plan_steps = steps(toolkit, tmp_path / "out", "8.0;9.0;12.0+PTX")
    (record,) = [step.generated for step in plan_steps if step.generated]
    for entry in ("compute_90", "sm_120", "clang++ 19.1.7, CUDA 12.8", '\\"cuda\\": \\"12.8\\"'):
        assert entry in record
    assert "compute_120" not in record


def test_clang_compiles_device_code_and_the_host_compiler_the_rest(
    toolkit: ClangToolkit, tmp_path: Path
) -> None:
    plan_steps = steps(toolkit, tmp_path / "out", "8.0;9.0+PTX")
    for step in plan_steps[:-2]:
        assert (step.command[0] == toolkit.clang) == (step.inputs[0].suffix == ".cu")
    device = next(step for step in plan_steps if step.command[0] == toolkit.clang)
    assert "-DTINY" not in " ".join(device.command), "the same sources as nvcc's"
    assert "-lcudart" in plan_steps[-1].command


def test_a_compiler_cache_stands_before_every_compiler(
    toolkit: ClangToolkit, tmp_path: Path
) -> None:
    plan_steps = steps(toolkit, tmp_path / "out", "8.0", launcher=("ccache",))
    assert all(step.command[0] == "ccache" for step in plan_steps[:-1])
    assert plan_steps[-1].command[0] != "ccache"


def test_a_launcher_in_cxx_is_not_doubled(toolkit: ClangToolkit, tmp_path: Path) -> None:
    launcher = program(tmp_path / "launcher", "g++ 12.2.0")
    request = BuildRequest(
        project=PROJECT,
        out_dir=tmp_path / "out",
        env={"CXX": f"{launcher} g++"},
        launcher=("ccache",),
        kernels=("cpu",),
    )
    assert all(step.command[:2] == (str(launcher), "g++") for step in plan(request))
