"""Compiles the kernel objects and the glue."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..builder import BuildRequest, execute, plan
from ..doctor.torch_probe import find_torch
from . import PROJECT, ReleaseError, emulation
from .cells import arch_list
from .paths import BINARIES, fresh
from .schema import Kernels
from .shell import clean_env
from .tasks import Context
from .toolchains import Toolchain, resolve

# Environment variables that change the output of a compiler.
COMPILER_VARIABLES = ("CXX", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "DEBUG")


def kernels(
    context: Context,
    *,
    name: str,
    wanted: Kernels,
    toolchain: Toolchain | None,
    made: Path | None,
    runtime: Path | None,
) -> Sequence[Path]:
    """Compiles a kernel object for the architectures of `wanted`.

    `made` is the folder of a CUDA toolkit from :func:`toolchains.toolkit`, `runtime` the folder of
    CUDA's runtime for another platform.
    """
    found = None
    if toolchain is not None:
        found = resolve(toolchain, made)
        context.log.write(f"compiled by {toolchain}")
    if runtime is not None:
        found = replace(found, library_dirs=(str(runtime),))
    archs = arch_list(wanted.archs) or None
    request = _request(f"kernels-{name}", kernels=(name,), cuda=found, architectures=archs)
    return _execute(context, request)


def glue(context: Context, *, glue: str, cxx11_abi: int, env: Path) -> Sequence[Path]:
    torch = find_torch(env)
    context.log.write(f"torch {torch.version}")
    if torch.cxx11_abi != cxx11_abi:
        raise ReleaseError(
            f"{glue} needs C++ ABI {cxx11_abi}, got torch {torch.version} with {torch.cxx11_abi} "
            f"in {torch.root}; correct `abi` in build_matrix.yaml or use another index"
        )
    return _execute(context, _request(f"glue-{glue}", glue=glue, torch=torch, kernels=()))


def _request(name: str, **what: Any) -> BuildRequest:
    # The matrix, not TORCH_CUDA_ARCH_LIST, sets the architectures of a release.
    env = emulation.compilers(clean_env())
    env.pop("TORCH_CUDA_ARCH_LIST", None)
    cache = shutil.which("ccache") or shutil.which("sccache")
    launcher = (cache,) if cache else ()
    return BuildRequest(BINARIES / name, PROJECT, env=env, launcher=launcher, **what)


def _execute(context: Context, request: BuildRequest) -> list[Path]:
    """Builds in a new folder without objects of earlier builds; returns the shared objects."""
    objects = fresh(request.out_dir) / "objects"
    execute(plan(request), objects, context.jobs, context.log.write)
    return sorted(request.out_dir.glob("*.so"))
