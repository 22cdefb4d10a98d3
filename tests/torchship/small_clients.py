"""Small clients of torchship: `tiny` has kernels for the CPU alone, `bare` and `kit` have none.

`tiny` is a whole package. `kit` has an operator for each helper of the doors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from torchship.builder import BuildRequest, execute, fitting_request, plan
from torchship.builder.request import FIRST_STABLE
from torchship.engine import copy_engine
from torchship.judge.machine.torch_probe import find_torch
from torchship.judge.project import Project
from torchship.judge.records import GlueName
from torchship.runtime.loader import BinariesCudaError, BinariesImportError, Loader

HELPERS = Path(__file__).resolve().parent
FOLDER = HELPERS / "clients"
REPO = HELPERS.parents[1]
TORCHSHIP = REPO / "torchship"
#: For programs that load clients by this checkout's torchship.
PYTHONPATH = os.pathsep.join(map(str, (HELPERS, REPO)))
CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tiny": ("scale", ("cpu",)),
    "bare": ("gram", ()),
}
KIT: dict[str, tuple[str, tuple[str, ...]]] = {"kit": ("copies", ())}


def project_of(name: str, root: Path) -> Project:
    operator, kernels = (CLIENTS | KIT)[name]
    return Project(
        distribution=f"{name}-client",
        package=f"{name}_client",
        namespace=name,
        prefix=name.upper(),
        operator=operator,
        version="0.1.0",
        folder=root,
        kernels=kernels,
    )


def loader_of(project: Project) -> Loader:
    """A loader with errors of the client's own, as its package makes one."""

    class ImportFailed(BinariesImportError):
        pass

    class CudaFailed(BinariesCudaError):
        pass

    ImportFailed.project = CudaFailed.project = project
    return Loader(project, ImportFailed, CudaFailed)


def glues() -> list[str]:
    """The glue of every door that the installed torch has."""
    torch = find_torch()
    assert torch.cxx11_abi is not None
    names = [str(GlueName("aten", torch.version_tuple, torch.cxx11_abi))]
    if torch.version_tuple >= FIRST_STABLE:
        names.insert(0, str(GlueName("stable", FIRST_STABLE)))
    return names


def glue_of(name: str) -> str:
    """The glue of `tiny` or `bare`; where torch has two doors, each has its own."""
    return {"tiny": glues()[0], "bare": glues()[-1]}[name]


class BuiltOnce(Protocol):
    """Builds a client with a glue."""

    def __call__(self, name: str, glue: str) -> Project: ...


def request(project: Project, glue: str) -> BuildRequest:
    """What to build of a client, without optimisation."""
    env = {**os.environ, "DEBUG": "1"}
    out = project.folder / "lib"
    return replace(
        fitting_request(project, find_torch(), out, env, log=lambda line: None), glue=glue
    )


def build(name: str, root: Path, glue: str) -> Project:
    """The client's binaries in `root`/lib, from its sources and the engine's."""
    shutil.copytree(FOLDER / name, root, dirs_exist_ok=True)
    _add_engine(root)
    project = project_of(name, root)
    execute(plan(request(project, glue)), root / "work", jobs=2, log=lambda line: None)
    return project


def linked_again(built: BuildRequest, folder: Path, ldflags: str) -> list[Path]:
    """The objects of what was built, linked with these LDFLAGS into binaries in `folder`."""
    binaries = []
    for step in plan(replace(built, env={**built.env, "LDFLAGS": ldflags})):
        if step.output.suffix == ".so":
            path = folder / step.output.name
            output = str(step.output)
            command = [str(path) if word == output else word for word in step.command]
            assert ldflags in command and str(path) in command
            subprocess.run(command, check=True)
            binaries.append(path)
    return binaries


def copy_with_engine(package: Path, target: Path) -> Path:
    """A copy of a client's package with an engine of its own, as a wheel has it."""
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("engine", "objects"))
    _add_engine(target)
    return target


def _add_engine(package: Path) -> None:
    copy_engine(package)
    (package / "engine" / "__init__.py").touch()


def build_namesake(root: Path, namespace: str) -> Project:
    """`bare` in `root`, built with the namespace of another project."""
    shutil.copytree(FOLDER / "bare", root)
    header = root / "csrc" / "project.h"
    content = header.read_text().replace("PROJECT_NAMESPACE bare", f"PROJECT_NAMESPACE {namespace}")
    header.write_text(content.replace(" bare_##name", f" {namespace}_##name"))
    project = project_of("bare", root)._replace(namespace=namespace)
    execute(plan(request(project, glues()[0])), root / "work", log=lambda line: None)
    return project
