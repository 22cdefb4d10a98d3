"""CUDA kernels on a machine that needs no GPU for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from build_places import copy_sources, environment, run

from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import (
    BuildError,
    BuildRequest,
    CudaToolkit,
    find_cuda_toolkit,
    plan,
)
from lltm_conda.engine.compat import read_binary

BUILD = """
import os, sys
from pathlib import Path
from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import BuildRequest, execute, find_cuda_toolkit, plan

nvcc = find_cuda_toolkit({**os.environ, "PATH": str(Path(sys.argv[1]).parent)})
name = f"cuda{nvcc.version[0]}"
execute(plan(BuildRequest(Path("out"), PROJECT, kernels=(name,), cuda=nvcc)), Path("out").resolve())
"""


def toolkit() -> CudaToolkit:
    try:
        found = find_cuda_toolkit(os.environ)
    except BuildError as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip('no nvcc; pip install "cuda-toolkit[nvcc,cudart,cccl]==13.0.*" brings one')
    return found


@pytest.mark.slow
def test_nvcc_makes_kernels_without_a_gpu_from_any_source_path(tmp_path: Path) -> None:
    nvcc = toolkit()
    root = copy_sources(tmp_path / "it's a, (folder)")
    env = environment(LLTM_CONDA_LOAD="0", PYTHONPATH=str(root), TORCH_CUDA_ARCH_LIST="8.0;9.0+PTX")
    run(sys.executable, "-c", BUILD, nvcc.nvcc, cwd=root, env=env).good()
    binary = read_binary(root / "out" / f"kernels-cuda{nvcc.version[0]}.so")
    assert binary.record is not None
    assert set(binary.cuda_archs) == {"sm_80", "sm_90", "compute_90"}
    assert binary.python_symbols == ()
    assert binary.torch_symbols == ()


def test_toolkit_knows_its_folder() -> None:
    home = toolkit().home()
    assert (home / "include" / "cuda_runtime.h").is_file()


def test_architecture_that_nvcc_lacks_is_refused(tmp_path: Path) -> None:
    nvcc = toolkit()
    env = {**os.environ, "TORCH_CUDA_ARCH_LIST": "1.0"}
    name = f"cuda{nvcc.version[0]}"
    with pytest.raises(BuildError, match=r"'1\.0' is no CUDA architecture that this nvcc compiles"):
        plan(BuildRequest(tmp_path, PROJECT, kernels=(name,), env=env, cuda=nvcc))
