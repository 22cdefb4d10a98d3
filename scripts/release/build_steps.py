"""Compiles the kernel objects and the glue."""

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.builder import BuildRequest, execute, find_host_compiler, plan
from engine.builder.programs import words
from engine.compat.torch_probe import find_torch
from release import PROJECT, ReleaseError, emulation
from release.paths import BINARIES, fresh, write_atomically
from release.processes import unmarked
from release.schema import Kernels
from release.shell import clean_env
from release.store import digest
from release.tasks import Context
from release.toolchains import Toolchain, resolve
from release.variants import arch_list

# Variables that change the output of a compiler.
COMPILER_VARIABLES = ("CXX", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "DEBUG")


def compiler_facts() -> dict[str, str]:
    return {name: os.environ[name] for name in COMPILER_VARIABLES if name in os.environ}


def kernels(
    context: Context,
    *,
    name: str,
    wanted: Kernels,
    toolchain: Toolchain | None,
    made: Path | None,
    runtime: Path | None = None,
) -> Sequence[Path]:
    """One torch-free kernel object.

    `made` is its CUDA toolkit and `runtime` is CUDA's runtime for another platform, each only if a
    task made it.
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
    """One glue object, compiled against the torch of the environment `env`."""
    torch = find_torch(env)
    context.log.write(f"torch {torch.version}")
    if torch.cxx11_abi != cxx11_abi:
        raise ReleaseError(
            f"{glue} needs a torch with C++ ABI {cxx11_abi}, got {torch.version} with "
            f"{torch.cxx11_abi} in {torch.root}; correct `abi` in build_matrix.yaml or the index"
        )
    return _execute(context, _request(f"glue-{glue}", glue=glue, torch=torch, kernels=()))


def _request(name: str, **what: Any) -> BuildRequest:
    launcher = compiler_cache()
    return BuildRequest(BINARIES / name, PROJECT, env=_build_env(), launcher=launcher, **what)


def compiler_cache() -> tuple[str, ...]:
    """The command of an installed compiler cache, to put before that of the compiler."""
    found = shutil.which("ccache") or shutil.which("sccache")
    return unmarked([found]) if found else ()


def _build_env() -> dict[str, str]:
    # The matrix names the architectures; the user's list is only for the user's own builds.
    env = emulation.compilers(clean_env())
    env.pop("TORCH_CUDA_ARCH_LIST", None)
    if len(words(env, "CXX")) > 1:  # the first word may be a compiler cache
        env["CXX"] = f"{shlex.join(unmarked([]))} {env['CXX']}".lstrip()
    return env


def _execute(context: Context, request: BuildRequest) -> list[Path]:
    """Runs the plan; ninja keeps the objects whose sources, headers and commands are the same.

    So after a commit without changed sources, only the record is compiled, and the object linked.
    The file made-with.json holds facts that ninja does not track: the versions of the compilers
    that the commands start, and of torch's headers.
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
    execute(plan(request), objects, context.jobs, context.log.write)
    return sorted(out.glob("*.so"))
