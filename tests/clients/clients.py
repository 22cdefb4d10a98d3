"""More clients of the engine: `tiny` has kernels for the CPU alone, `bare` and `kit` have none.

`kit` has an operator for each helper of the doors.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from lltm_conda.engine.builder import execute, fitting_request, plan
from lltm_conda.engine.builder.request import FIRST_STABLE
from lltm_conda.engine.doctor.project import Project
from lltm_conda.engine.doctor.records import GlueName
from lltm_conda.engine.doctor.torch_probe import find_torch
from lltm_conda.engine.runtime.loader import BinariesCudaError, BinariesImportError, Loader

HERE = Path(__file__).resolve().parent
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
        version="0.1",
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


def build(name: str, root: Path, *, only: str = "") -> Project:
    """The client's binaries in `root`/lib, from its sources and the engine's.

    All glues, or `only` one.
    """
    shutil.copytree(HERE / name, root, dirs_exist_ok=True)
    project = project_of(name, root)
    # Without optimisation; what the linker is asked for stays.
    env = {**os.environ, "DEBUG": "1"}
    fitting = fitting_request(project, find_torch(), root / "lib", env, log=lambda line: None)
    chosen = [only] if only else glues()
    requests = [
        replace(fitting, glue=glue, kernels=fitting.kernels if glue == chosen[0] else ())
        for glue in chosen
    ]
    for request in requests:
        execute(plan(request), root / "work", jobs=2, log=lambda line: None)
    return project
