"""`lltm_conda.jit.load()` with CUDA, and the tutorial's way; tests/torchship has the rest."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from build_places import REPO, environment, run

import lltm_conda

PROGRAM = Path(__file__).with_name("jit_program.py")
SHOWN = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


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


@pytest.mark.rehearsal
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
