"""CUDA kernels on a machine that needs no GPU for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lltm_conda.builder import (
    BuildError,
    BuildRequest,
    CudaToolkit,
    execute,
    find_cuda_toolkit,
    plan,
)
from lltm_conda.compat import read_binary


def toolkit() -> CudaToolkit:
    try:
        found = find_cuda_toolkit(os.environ)
    except BuildError as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip('no nvcc; pip install "cuda-toolkit[nvcc,cudart,cccl]==13.0.*" brings one')
    return found


def test_nvcc_makes_kernels_without_a_gpu(tmp_path: Path) -> None:
    nvcc = toolkit()
    out = tmp_path / "a folder"
    name = f"cuda{nvcc.version[0]}"
    env = {**os.environ, "TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"}
    execute(plan(BuildRequest(out, kernels=(name,), env=env, cuda=nvcc)), out, log=lambda _: None)
    binary = read_binary(out / f"kernels-{name}.so")
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
        plan(BuildRequest(tmp_path, kernels=(name,), env=env, cuda=nvcc))
