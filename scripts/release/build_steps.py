"""Compiling: one environment with torch, the kernel objects, the glue."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lltm_conda.builder import BuildRequest, CudaToolkit, execute, find_cuda_toolkit, plan
from lltm_conda.compat.torch_probe import find_torch
from release import BUILD, REPO, ReleaseError
from release.cells import Cell
from release.environments import REMEDY, index_options, make_venv
from release.paths import BINARIES, ENVS, fresh, tool
from release.schema import Kernels, Toolkit
from release.shell import Log, clean_env
from release.store import sources
from release.tasks import Context, SkipTask

SOURCES = tuple(
    sources(REPO, "csrc/**/*", "include/**/*", "lltm_conda/builder/*.py", "lltm_conda/_version.py")
)
# Variables that change what a compiler makes.
COMPILER_VARIABLES = ("CXX", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "DEBUG")


def compiler_facts() -> dict[str, str]:
    names = (*COMPILER_VARIABLES, "SOURCE_DATE_EPOCH")
    return {name: os.environ[name] for name in names if name in os.environ}


def torch_env(context: Context, *, python: str, release: str, name: str) -> Sequence[Path]:
    """An environment with torch to compile against."""
    folder = ENVS / name
    make_venv(context.log, folder, python, [f"torch=={release}", "numpy"])
    context.log.write(f"torch {find_torch(folder).version}")
    return [folder]


def kernels(
    context: Context, *, name: str, wanted: Kernels, toolkit: Toolkit | None, jobs: int
) -> Sequence[Path]:
    """One torch-free kernel object."""
    out = BINARIES / f"kernels-{name}"
    found = cuda_toolkit(context.log, wanted.toolkit or "", toolkit) if toolkit else None
    architectures = ";".join(_dotted(arch) for arch in wanted.archs) or None
    request = BuildRequest(
        out_dir=out,
        kernels=(name,),
        env=_build_env(),
        cuda=found,
        architectures=architectures,
    )
    return _execute(context, request, jobs)


def cuda_toolkit(log: Log, version: str, wheels: Toolkit) -> CudaToolkit:
    """The toolkit of that version: installed on this machine, else made of PyPI's wheels."""
    found = find_cuda_toolkit(os.environ)
    if found and found.version_text == version:
        log.write(f"CUDA {version} is installed: {found.nvcc}")
        return found
    if not wheels.nvcc:
        raise SkipTask(f"needs an nvcc {version} (set CUDA_HOME); PyPI's wheels of it hold none")
    folder = BUILD / "toolkits" / f"cuda-{version}"
    target = ["--target", fresh(folder), "--python", sys.executable]
    command = [tool("uv"), "pip", "install", *target, *index_options(), *wheels.pypi]
    log.run(command, remedy=REMEDY)
    found = find_cuda_toolkit({**os.environ, "CUDA_HOME": str(_complete(folder))})
    if found is None or found.version_text != version:
        raise ReleaseError(f"{folder}: holds no nvcc {version}; delete it and run the same again")
    return found


def _complete(folder: Path) -> Path:
    """The names that nvcc and linkers look for, which the wheels leave out."""
    (home,) = folder.glob("nvidia/cu*")
    links = {home / "lib64": "lib"}
    for library in home.glob("lib/libcudart.so.*"):
        links[home / "lib" / "libcudart.so"] = library.name
    for link, target in links.items():
        if not link.exists():
            link.symlink_to(target)
    return home


def glue(context: Context, *, cell: Cell, env: str, jobs: int) -> Sequence[Path]:
    """One glue object, against the torch of the environment made before."""
    torch = find_torch(context.only(env))
    if torch.cxx11_abi != cell.cxx11_abi:
        raise ReleaseError(
            f"{cell.glue} needs a torch with C++ ABI {cell.cxx11_abi}, got {torch.version} with "
            f"{torch.cxx11_abi} in {torch.root}; correct `abi` in build_matrix.yaml or the index"
        )
    request = BuildRequest(
        out_dir=BINARIES / f"glue-{cell.glue}",
        glue=cell.glue,
        torch=torch,
        kernels=(),
        env=_build_env(),
    )
    return _execute(context, request, jobs)


def _build_env() -> dict[str, str]:
    # The matrix decides the architectures; the user's list is for builds of their own.
    env = clean_env()
    env.pop("TORCH_CUDA_ARCH_LIST", None)
    return env


def _execute(context: Context, request: BuildRequest, jobs: int) -> list[Path]:
    fresh(request.out_dir)
    steps = plan(request)
    execute(steps, request.out_dir / "objects", jobs, context.log.write)
    return sorted(request.out_dir.glob("*.so"))


def _dotted(arch: str) -> str:
    """sm_90 -> 9.0, compute_120 -> 12.0+PTX: the notation of TORCH_CUDA_ARCH_LIST."""
    kind, number = arch.split("_")
    return f"{number[:-1]}.{number[-1]}{'+PTX' if kind == 'compute' else ''}"
