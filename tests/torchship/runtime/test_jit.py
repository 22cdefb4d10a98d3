"""`jit.load()` of a client's package, in processes of their own, since an op registers once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Forks, clean_environment

PROGRAM = Path(__file__).with_name("jit_program.py")
FALL_BACK = """
import os, sys

try:
    import tiny_client
except ImportError as error:
    print(error)
    os.environ["TINY_LOAD"] = "0"
    import tiny_client.jit

    tiny_client.jit.load(build_directory=sys.argv[1])

import torch

print(tiny_client.__file__, tiny_client.scale(torch.ones(2), 3).tolist())
"""


@dataclass(frozen=True)
class Answer:
    steps: dict[str, Any]
    output: str


class Jit:
    """Runs jit_program.py with the package and one cache."""

    def __init__(self, package: Path, cache: Path, forked: Forks) -> None:
        self.package = package
        self.cache = cache
        self.forked = forked

    def environment(self, **changes: str) -> dict[str, str]:
        """Without optimisation, to be quick."""
        quick = {"DEBUG": "1", "FORCE_CUDA": "0", "PYTHONPATH": str(self.package.parent)}
        return clean_environment(**{"TINY_CACHE": str(self.cache), **quick, **changes})

    def ask(self, *steps: str, **changes: str) -> Answer:
        code = PROGRAM.read_text(encoding="utf-8")
        env = self.environment(**changes)
        process = self.forked.run(code, *steps, cwd=self.cache.parent, env=env)
        assert process.returncode == 0, process.stdout + process.stderr
        (line,) = (line for line in process.stdout.splitlines() if line.startswith("ANSWER "))
        return Answer(json.loads(line.removeprefix("ANSWER ")), process.stdout + process.stderr)


@pytest.fixture(scope="module")
def jit(tiny_package: Path, forked: Forks, tmp_path_factory: pytest.TempPathFactory) -> Jit:
    return Jit(tiny_package, tmp_path_factory.mktemp("jit") / "cache", forked)


@pytest.fixture(scope="module")
def first(jit: Jit) -> Answer:
    """The first build of this cache."""
    steps = ["broken_compiler", "load_verbose", "computes_right", "public_names", "load"]
    steps.append("load_other")
    if torch.version.cuda is None:
        steps.insert(0, "load_cuda")
    return jit.ask(*steps, TORCH_EXTENSIONS_DIR=str(jit.cache / "no"))


def test_jit_computes_right(first: Answer) -> None:
    assert first.steps["computes_right"] is True


def test_jit_completes_the_package(first: Answer) -> None:
    assert first.steps["public_names"] == []


def test_jit_lands_in_the_cache_of_local_builds(first: Answer, jit: Jit) -> None:
    assert Path(first.steps["load_verbose"]).is_relative_to(jit.cache)
    assert not (jit.cache / "no").exists()


def test_verbose_shows_what_is_compiled(first: Answer) -> None:
    assert "compile table.cpp for kernels-cpu.so" in first.output


def test_failed_build_shows_the_cause_and_can_be_repeated(first: Answer) -> None:
    assert "out of order" in first.steps["broken_compiler"]
    assert first.steps["broken_compiler"].endswith("run the same command again")
    assert first.steps["load_verbose"].endswith(".so")


def test_second_load_with_other_arguments_is_explained(first: Answer) -> None:
    assert "was called before with other arguments" in first.steps["load_other"]
    assert "once per process" in first.steps["load_other"]


def test_same_arguments_give_the_same_library(first: Answer) -> None:
    assert first.steps["load"] == first.steps["load_verbose"]


def test_second_process_takes_it_from_the_cache(first: Answer, jit: Jit) -> None:
    built = Path(first.steps["load"])
    before = built.stat().st_mtime_ns
    again = jit.ask("threads", "computes_right")
    assert again.steps["threads"] == [str(built)]
    assert again.steps["computes_right"] is True
    assert built.stat().st_mtime_ns == before


def test_an_import_finds_it_too(first: Answer, jit: Jit) -> None:
    command = [sys.executable, "-m", "tiny_client", "build", "--list"]
    place = jit.cache.parent
    listed = subprocess.run(command, env=jit.environment(), cwd=place, capture_output=True)
    assert Path(first.steps["load"]).parent.name in listed.stdout.decode()


def test_after_an_ordinary_import_it_explains_instead_of_aborting(jit: Jit) -> None:
    answer = jit.ask("aot", "load")
    assert "torch.ops.tiny is registered already, by" in answer.steps["load"]
    assert "TINY_LOAD=0" in answer.steps["load"]


def test_it_serves_where_the_import_finds_no_binary(
    first: Answer, jit: Jit, tmp_path: Path
) -> None:
    package = tmp_path / "tiny_client"
    shutil.copytree(jit.package, package, ignore=shutil.ignore_patterns("lib"))
    env = jit.environment(PYTHONPATH=str(tmp_path), TINY_CACHE=str(tmp_path / "no cache"))
    process = jit.forked.run(FALL_BACK, str(jit.cache), cwd=tmp_path, env=env)
    assert "tiny-client cannot be loaded" in process.stdout, process.stderr
    assert process.stdout.endswith(f"{package}/__init__.py [3.0, 3.0]\n"), process.stderr


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_code_from_a_folder_that_others_can_write_is_not_run(
    first: Answer, jit: Jit, mode: int
) -> None:
    jit.cache.chmod(mode)
    try:
        refused = jit.ask("load").steps["load"]
    finally:
        jit.cache.chmod(0o700)
    assert f"has mode {mode:04o}, not 0700. To fix it: chmod -R go= {jit.cache}" in refused


@pytest.mark.skipif(torch.version.cuda is not None, reason="needs a CPU build of torch")
def test_cuda_is_refused_by_a_cpu_build_of_torch(first: Answer) -> None:
    assert "CPU build and has no CUDA tensors" in first.steps["load_cuda"]
