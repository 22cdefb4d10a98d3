"""Which binaries fit the torch of an environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ..compat.records import GlueName, TorchInstall
from ..project import Project
from .cuda_toolkit import NO_NVCC, CudaToolkit, default_architectures, find_cuda_toolkit
from .plan import BuildRequest
from .programs import BuildError, flag

# From this torch on, the stable ABI has all that the op needs: one object serves every later torch.
FIRST_STABLE = (2, 10)
OLDEST = (2, 4)


def glue_for(torch: TorchInstall, project: Project) -> str:
    """The name of the glue that fits `torch`: `stable210`, or `aten<minor>-abi<flavour>`."""
    if torch.version_tuple >= FIRST_STABLE:
        return str(GlueName("stable", FIRST_STABLE))
    if torch.version_tuple < OLDEST:
        raise BuildError(
            f"{project.distribution} needs torch 2.4 or newer, got {torch.version} in "
            f"{torch.root}; upgrade torch: pip install --upgrade torch"
        )
    if torch.cxx11_abi is None:
        raise BuildError(
            f"the C++ ABI of torch {torch.version} in {torch.root} cannot be told from its libc10; "
            "reinstall torch: pip install --force-reinstall torch"
        )
    return str(GlueName("aten", torch.version_tuple, torch.cxx11_abi))


def fitting_request(
    project: Project,
    torch: TorchInstall,
    out_dir: Path,
    env: Mapping[str, str] | None = None,
    log: Callable[[str], None] = print,
) -> BuildRequest:
    """The request for the one variant that fits `torch` and this machine's compilers.

    CUDA kernels, where the project has any, are built when torch is a CUDA build and an nvcc of its
    major is found; FORCE_CUDA=1 asks for them regardless, FORCE_CUDA=0 forbids them. No GPU is
    needed: build machines have none.
    """
    env = dict(os.environ) if env is None else env
    glue = glue_for(torch, project)
    toolkit = _toolkit(torch, env, log) if "cuda" in project.kernels else None
    kernels: tuple[str, ...] = ("cpu",) if "cpu" in project.kernels else ()
    if toolkit is not None:
        kernels += (f"cuda{toolkit.version[0]}",)
    return BuildRequest(out_dir, project, glue, torch, kernels, env, toolkit)


def _toolkit(
    torch: TorchInstall, env: Mapping[str, str], log: Callable[[str], None]
) -> CudaToolkit | None:
    forced = flag(env, "FORCE_CUDA")
    if forced is False or (forced is None and torch.cuda is None):
        return None  # forbidden, or a CPU build of torch, which has no CUDA tensors
    toolkit = find_cuda_toolkit(env, [torch.root.parent], major=torch.cuda_major)
    try:
        if toolkit is None:
            asks = (
                "FORCE_CUDA=1 asks" if forced else f"torch {torch.version} is a CUDA build and asks"
            )
            raise BuildError(
                f"{asks} for CUDA kernels, but no nvcc was found: {NO_NVCC}, or set FORCE_CUDA=0"
            )
        if not env.get("TORCH_CUDA_ARCH_LIST"):
            default_architectures(toolkit.version, toolkit.architectures())
        if torch.cuda_major is not None and toolkit.version[0] > torch.cuda_major:
            text = (
                f"nvcc {toolkit.version_text} is newer than the CUDA {torch.cuda} of torch "
                f"{torch.version}: its kernels need a driver for CUDA {toolkit.version[0]}, which "
                "may be missing where that torch runs"
            )
            if not forced:
                raise BuildError(
                    f"{text}; set CUDA_HOME to a CUDA {torch.cuda_major} toolkit, or FORCE_CUDA=1 "
                    "if the driver is new enough"
                )
            log(f"{text}; building them since FORCE_CUDA=1")
    except BuildError as error:
        if forced:
            raise
        log(f"{error}. Building for the CPU only")
        return None
    return toolkit
