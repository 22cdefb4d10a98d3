"""Compiling: one environment with torch, the kernel objects, the glue."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from lltm_conda.builder import BuildRequest, execute, find_host_compiler, plan
from lltm_conda.compat.torch_probe import find_torch
from release import REPO, ReleaseError
from release.cells import Cell
from release.environments import make_venv
from release.paths import BINARIES, CACHE, ENVS, fresh
from release.schema import Kernels
from release.shell import clean_env
from release.store import digest, sources, write_atomically
from release.tasks import Context
from release.toolchain_steps import resolve
from release.toolchains import Toolchain
from release.variants import arch_list

SOURCES = tuple(
    sources(REPO, "csrc/**/*", "include/**/*", "lltm_conda/builder/*.py", "lltm_conda/_version.py")
)
# Variables that change what a compiler makes.
COMPILER_VARIABLES = ("CXX", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "DEBUG")


def compiler_facts() -> dict[str, str]:
    names = (*COMPILER_VARIABLES, "SOURCE_DATE_EPOCH")
    return {name: os.environ[name] for name in names if name in os.environ}


def torch_env(
    context: Context,
    *,
    python: str,
    release: str,
    name: str,
    cache: Path | None,
    find_links: bool = True,
) -> Sequence[Path]:
    """An environment with torch to compile against; `cache` where it goes when it is shed.

    Without `find_links` it is the index's build, not one that lies on this machine.
    """
    folder, wanted = ENVS / name, [f"torch=={release}", "numpy"]
    make_venv(context.log, folder, python, wanted, cache=cache, find_links=find_links)
    context.log.write(f"torch {find_torch(folder).version}")
    return [folder]


def borrowed_env(context: Context, *, root: Path, name: str) -> Sequence[Path]:
    """The torch of another environment to compile against, its package folder linked to."""
    folder = fresh(ENVS / name)
    site = folder / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    (site / "torch").symlink_to(root)
    context.log.write(f"torch {find_torch(folder).version} of {root}")
    return [folder]


def torch_cache(name: str) -> Path:
    """The cache that environments with the torch of the environment `name` are made from."""
    return CACHE / f"uv-{name}"


def kernels(
    context: Context,
    *,
    name: str,
    wanted: Kernels,
    toolchain: Toolchain | None,
    made: str | None,
    jobs: int,
) -> Sequence[Path]:
    """One torch-free kernel object; `made` is the task that made its CUDA toolkit, if one did."""
    out = BINARIES / f"kernels-{name}"
    found = None
    if toolchain is not None:
        found = resolve(toolchain, context.only(made) if made else None)
        context.log.write(f"compiled by {toolchain}")
    request = BuildRequest(
        out_dir=out,
        kernels=(name,),
        env=_build_env(),
        cuda=found,
        architectures=arch_list(wanted.archs) or None,
        launcher=compiler_cache(),
    )
    return _execute(context, request, jobs)


def compiler_cache() -> tuple[str, ...]:
    """A compiler cache that is installed: compilations that it has seen cost next to nothing."""
    found = shutil.which("ccache") or shutil.which("sccache")
    return (found,) if found else ()


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
        launcher=compiler_cache(),
    )
    return _execute(context, request, jobs)


def _build_env() -> dict[str, str]:
    # The matrix decides the architectures; the user's list is for builds of their own.
    env = clean_env()
    env.pop("TORCH_CUDA_ARCH_LIST", None)
    return env


def _execute(context: Context, request: BuildRequest, jobs: int) -> list[Path]:
    """Runs the plan; ninja keeps the objects whose sources, headers and commands are the same.

    So a commit that touches no source costs the record and the link. What ninja does not see, the
    compilers behind the commands and torch's headers, is written beside the objects.
    """
    out, objects = request.out_dir, request.out_dir / "objects"
    torch, cuda = request.torch, request.cuda
    made_with = {
        "compiler": str(find_host_compiler(request.env)),
        "environment": compiler_facts(),
        "cuda": getattr(cuda, "name", None) or (cuda.version_text if cuda else None),
        "torch": digest(torch.root / "version.py") if torch else None,
    }
    marker = objects / "made-with.json"
    text = json.dumps(made_with, sort_keys=True)
    if not marker.is_file() or marker.read_text(encoding="utf-8") != text:
        fresh(out)
        write_atomically(marker, text)
    for stale in out.glob("*.so"):
        stale.unlink()
    execute(plan(request), objects, jobs, context.log.write)
    return sorted(out.glob("*.so"))
