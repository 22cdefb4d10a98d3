"""CUDA kernels on a machine that needs no GPU for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from build_places import REPO, copy_sources, environment, quick_nvcc, run

from lltm_conda.engine.builder import (
    BuildError,
    CudaToolkit,
    find_cuda_toolkit,
)
from lltm_conda.engine.judge import read_binary

BUILD = """
import os, sys
from dataclasses import replace
from pathlib import Path
from lltm_conda._project import PROJECT
from lltm_conda.engine.builder import BuildRequest, execute, find_cuda_toolkit, plan

nvcc = find_cuda_toolkit({**os.environ, "PATH": str(Path(sys.argv[1]).parent)})
# As a cross build does, which takes the static runtime from the build folder.
nvcc = replace(nvcc, library_dirs=(*nvcc.library_dirs, str(Path("runtime").resolve())))
name = f"cuda{nvcc.version[0]}"
request = BuildRequest(Path("out"), PROJECT, kernels=(name,), cuda=nvcc)
execute(plan(request), Path("out").resolve())
print(*Path("out").glob("*.so"))
"""


def toolkit() -> CudaToolkit:
    try:
        cuda = find_cuda_toolkit(os.environ)
    except BuildError as error:
        pytest.skip(str(error))
    if cuda is None:
        pytest.skip('no nvcc; pip install "cuda-toolkit[nvcc,cudart,cccl]==13.0.*" brings one')
    return cuda


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The kernels, built by nvcc from two copies of the sources."""
    nvcc = toolkit()
    objects = []
    for name in ("plain", "it's a, (folder)"):
        root = copy_sources(tmp_path_factory.mktemp("nvcc") / name)
        env = environment(
            LLTM_CONDA_LOAD="0",
            LLTM_CONDA_GIT_COMMIT="c" * 40,
            SOURCE_DATE_EPOCH="1700000000",
            PYTHONPATH=str(root),
            TORCH_CUDA_ARCH_LIST="8.0+PTX",
            **quick_nvcc(nvcc.version),
        )
        path = run(sys.executable, "-c", BUILD, nvcc.nvcc, cwd=root, env=env).good().split("\n")[-2]
        objects.append(root / path)
    return objects


@pytest.mark.rehearsal
def test_nvcc_makes_kernels_without_a_gpu(kernels: list[Path]) -> None:
    binary = read_binary(kernels[0])
    assert binary.record is not None
    assert set(binary.cuda_archs) == {"sm_80", "compute_80"}
    assert binary.python_symbols == ()
    assert binary.torch_symbols == ()


@pytest.mark.rehearsal
def test_nvcc_makes_the_same_bytes_in_any_path(kernels: list[Path]) -> None:
    one, other = (path.read_bytes() for path in kernels)
    assert one == other


def test_no_kernel_is_in_an_anonymous_namespace() -> None:
    """Nvcc would write a hash of the source's folder into its name."""
    for path in (REPO / "csrc" / "kernels" / "cuda").rglob("*.cu"):
        source = path.read_text(encoding="utf-8")
        assert "__global__" not in source or "\nnamespace {" not in source, path.name
