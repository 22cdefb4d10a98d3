"""`lltm_conda.jit.load()`, in processes of their own, since an op registers once."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from build_places import REPO, environment, run

import lltm_conda
from lltm_conda.engine.builder import source_root

PROGRAM = Path(__file__).with_name("jit_program.py")
SHOWN = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FALL_BACK = """
import os

try:
    import lltm_conda
except ImportError as error:
    print(error)
    os.environ["LLTM_CONDA_LOAD"] = "0"
    import lltm_conda.jit

    lltm_conda.jit.load()

import torch

print(lltm_conda.__file__, lltm_conda.LLTM(3, 4)(torch.ones(2, 3))[0].shape)
"""


@dataclass(frozen=True)
class Answer:
    steps: dict[str, Any]
    output: str


def ask(cache: Path, *steps: str, **changes: str) -> Answer:
    package = str(Path(lltm_conda.__file__).parents[1])
    env = environment(LLTM_CONDA_CACHE=str(cache), PYTHONPATH=package, **changes)
    # Elsewhere than in the checkout, whose sources would shadow the installed package.
    output = run(sys.executable, PROGRAM, *steps, cwd=cache.parent, env=env).good()
    (line,) = (line for line in output.splitlines() if line.startswith("ANSWER "))
    return Answer(json.loads(line.removeprefix("ANSWER ")), output)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jit") / "cache"


@pytest.fixture(scope="module")
def first(cache: Path) -> Answer:
    """The first build of this cache, without optimisation to be quick."""
    steps = ["broken_compiler", "load_verbose", "error", "public_names", "module", "load"]
    steps.append("load_other")
    if torch.version.cuda is None:
        steps.insert(0, "load_cuda")
    return ask(cache, *steps, DEBUG="1", FORCE_CUDA="0", TORCH_EXTENSIONS_DIR=str(cache / "no"))


def test_jit_computes_right(first: Answer) -> None:
    assert first.steps["error"] < 1e-12


def test_jit_completes_the_package(first: Answer) -> None:
    assert first.steps["public_names"] == []
    assert first.steps["module"] == [2, 4]


def test_jit_lands_in_the_cache_of_local_builds(first: Answer, cache: Path) -> None:
    assert Path(first.steps["load_verbose"]).is_relative_to(cache)
    assert not (cache / "no").exists()


def test_verbose_shows_what_is_compiled(first: Answer) -> None:
    assert "kernel_registry.cpp" in first.output


def test_failed_build_shows_the_cause_and_can_be_repeated(first: Answer) -> None:
    assert "out of order" in first.steps["broken_compiler"]
    assert first.steps["broken_compiler"].endswith("run the same command again")
    assert first.steps["load_verbose"].endswith(".so")


def test_second_load_with_other_arguments_is_explained(first: Answer) -> None:
    assert "was called before with other arguments" in first.steps["load_other"]
    assert "once per process" in first.steps["load_other"]


def test_same_arguments_give_the_same_library(first: Answer) -> None:
    assert first.steps["load"] == first.steps["load_verbose"]


def test_second_process_takes_it_from_the_cache(first: Answer, cache: Path) -> None:
    built = Path(first.steps["load"])
    before = built.stat().st_mtime_ns
    again = ask(cache, "threads", "error", DEBUG="1", FORCE_CUDA="0")
    assert again.steps["threads"] == [str(built)]
    assert again.steps["error"] < 1e-12
    assert built.stat().st_mtime_ns == before


def test_an_import_finds_it_too(first: Answer, cache: Path) -> None:
    listed = run(
        *(sys.executable, "-P", "-m", "lltm_conda", "build", "--list"),
        env=environment(LLTM_CONDA_CACHE=str(cache)),
    ).good()
    assert Path(first.steps["load"]).parent.name in listed


def test_after_an_ordinary_import_it_explains_instead_of_aborting(cache: Path) -> None:
    answer = ask(cache, "aot", "load")
    assert "torch.ops.lltm is registered already, by" in answer.steps["load"]
    assert "LLTM_CONDA_LOAD=0" in answer.steps["load"]


def test_it_serves_where_the_import_finds_no_binary(
    first: Answer, cache: Path, tmp_path: Path
) -> None:
    unwanted = shutil.ignore_patterns("lib", "__pycache__")
    shutil.copytree(Path(lltm_conda.__file__).parent, tmp_path / "lltm_conda", ignore=unwanted)
    shutil.copytree(source_root(), tmp_path / "lltm_conda" / "csrc", dirs_exist_ok=True)
    env = environment(
        PYTHONPATH=str(tmp_path),
        LLTM_CONDA_CACHE=str(tmp_path / "no cache"),
        # As for `first`, whose objects serve here
        DEBUG="1",
        FORCE_CUDA="0",
    )
    code = FALL_BACK.replace("jit.load()", f"jit.load(build_directory={str(cache)!r})")
    output = run(sys.executable, "-c", code, cwd=tmp_path, env=env).good()
    assert "lltm cannot be loaded" in output
    assert output.endswith(f"{tmp_path}/lltm_conda/__init__.py torch.Size([2, 4])\n")


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_code_from_a_folder_that_others_can_write_is_not_run(
    first: Answer, cache: Path, mode: int
) -> None:
    cache.chmod(mode)
    try:
        refused = ask(cache, "load", DEBUG="1", FORCE_CUDA="0").steps["load"]
    finally:
        cache.chmod(0o700)
    assert f"has mode {mode:04o}, not 0700. To fix it: chmod -R go= {cache}" in refused


@pytest.mark.skipif(torch.version.cuda is not None, reason="needs a CPU build of torch")
def test_cuda_is_refused_by_a_cpu_build_of_torch(first: Answer) -> None:
    assert "CPU build and has no CUDA tensors" in first.steps["load_cuda"]


@pytest.mark.slow
def test_the_way_of_the_tutorial(tmp_path: Path) -> None:
    """What the documentation shows: torch's own `load` compiles our sources as they are."""
    page = (REPO / "docs" / "start" / "building" / "jit.md").read_text()
    (code,) = (block for block in SHOWN.findall(page) if "cpp_extension" in block)
    package = Path(lltm_conda.__file__).parents[1]
    env = environment(
        LLTM_CONDA_LOAD="0", TORCH_EXTENSIONS_DIR=str(tmp_path), PYTHONPATH=str(package)
    )
    output = run(sys.executable, "-c", code.replace("-O3", "-O0"), cwd=tmp_path, env=env).good()
    assert output.endswith("torch.Size([4, 5])\n")
    assert list(tmp_path.glob("**/lltm_tutorial.so"))


@pytest.mark.cuda
def test_jit_compiles_cpp_and_cuda(tmp_path: Path) -> None:
    answer = ask(tmp_path, "load_cuda", "error", "cuda_error")
    assert answer.steps["load_cuda"].endswith(".so")
    assert answer.steps["error"] < 1e-12
    assert answer.steps["cuda_error"] < 1e-12


@pytest.mark.cuda
def test_jit_finds_nvcc_and_the_gpu_by_itself(tmp_path: Path) -> None:
    answer = ask(tmp_path, "load", "cuda_facts", "cuda_error")
    major, minor = torch.cuda.get_device_capability()
    assert f"sm_{major}{minor}" in answer.steps["cuda_facts"]
    assert answer.steps["cuda_error"] < 1e-12
