"""A compiler for another platform: the record says it, and nvcc is told where to look."""

from __future__ import annotations

import os
import platform
from itertools import pairwise
from pathlib import Path

import pytest
from rendered_client import PROJECT

from torchship.builder import BuildRequest, CudaToolkit, Step, plan

NVCC = """case $* in
*--list-gpu-arch*) echo compute_90 ;;
esac"""


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def steps(folder: Path, machine: str, options: str = "", **more: str) -> list[Step]:
    answer = f"""case $* in
*-dumpmachine) echo {machine}-linux-gnu ;;
*) echo 'g++ (X) 12.2.0' ;;
esac"""
    launcher = program(folder / "launcher", 'exec "$@"')
    env = {**os.environ, "CXX": f"{launcher} {program(folder / 'g++', answer)} {options}", **more}
    toolkit = CudaToolkit(program(folder / "nvcc", NVCC), (13, 0), ("/runtime",))
    request = BuildRequest(
        out_dir=folder,
        project=PROJECT,
        kernels=("cpu", "cuda13"),
        env=env,
        cuda=toolkit,
        architectures="9.0",
    )
    return plan(request)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_cross_build_is_a_property_of_the_compiler(machine: str, tmp_path: Path) -> None:
    plan_steps = steps(tmp_path, machine)
    records = [step.generated for step in plan_steps if step.generated]
    assert len(records) == 2
    assert all(f'\\"platform\\": \\"linux-{machine}\\"' in record for record in records)
    by_nvcc = [step.command for step in plan_steps if step.command[0].endswith("nvcc")]
    assert len(by_nvcc) == 2  # a compilation and the link
    host_machine = platform.machine()
    for command in by_nvcc:
        targets = [b for a, b in pairwise(command) if a == "--target-directory"]
        names = {"aarch64": "sbsa"}
        assert targets == (
            [] if machine == host_machine else [f"{names.get(host_machine, host_machine)}-linux"]
        )
    assert "-L/runtime" in by_nvcc[-1]
    assert "--no-device-link" in by_nvcc[-1]  # nvlink would write that folder into the object


def test_nvcc_gets_the_compiler_that_cxx_names_and_its_options(tmp_path: Path) -> None:
    options = f"-m64 -B {tmp_path}"
    plan_steps = steps(tmp_path, platform.machine(), options)
    named = steps(tmp_path, platform.machine(), options, CUDAHOSTCXX="/other/g++")
    for command in (step.command for step in plan_steps if step.command[0].endswith("nvcc")):
        assert [b for a, b in pairwise(command) if a == "-ccbin"] == [str(tmp_path / "g++")]
        passed = [word for word in command if word.startswith("-Xcompiler=")]
        assert passed[:3] == ["-Xcompiler=-m64", "-Xcompiler=-B", f"-Xcompiler={tmp_path}"]
    for command in (step.command for step in named if step.command[0].endswith("nvcc")):
        assert [b for a, b in pairwise(command) if a == "-ccbin"] == ["/other/g++"]
        assert "-Xcompiler=-m64" not in command  # an option of the other compiler
