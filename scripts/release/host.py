"""What this machine has: an interpreter with or without torch, compilers, CUDA, a driver."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.builder import BuildError, HostCompiler, find_host_compiler, glue_for
from engine.compat.records import TorchInstall
from engine.compat.torch_probe import TorchNotFoundError, find_torch
from release import PROJECT, ReleaseError, toolchains
from release.cells import Cell, all_cells, select
from release.interpreters import python_facts
from release.schema import Matrix
from release.toolchains import Compilers, Toolchain


@dataclass(frozen=True)
class Host:
    """The facts that decide which cells this machine can build.

    Attributes:
        python: the base interpreter of the one that the tool was started with, the same whichever
            virtual environment is active; environments are made from it.
        python_minor: its version, `3.11`.
        torch: the torch of that interpreter's environment, if any.
        compiler: the host compiler, or None.
        cuda: the compilers for CUDA.
        driver: whether an NVIDIA driver is loaded.
    """

    python: str
    python_minor: str
    torch: TorchInstall | None
    compiler: HostCompiler | None
    cuda: Compilers = field(default_factory=Compilers)
    driver: bool = False


def probe(python: str, matrix: Matrix) -> Host:
    """Looks at this machine; `python` is the interpreter of the calling environment."""
    facts = python_facts(python)
    try:
        torch = find_torch(python=python)
    except TorchNotFoundError:
        torch = None
    try:
        compiler = find_host_compiler(os.environ)
    except BuildError:
        compiler = None
    cuda = toolchains.probe(matrix)
    driver = Path("/proc/driver/nvidia/version").exists()
    return Host(facts["exe"], facts["minor"], torch, compiler, cuda, driver)


def gcc_major(compiler: HostCompiler | None) -> int | None:
    """12 for `g++ 12.2.0`; None for no compiler or another kind."""
    match = re.match(r"(?:g\+\+|gcc|c\+\+)\S* (\d+)", str(compiler)) if compiler else None
    return int(match[1]) if match else None


def obstacle(cell: Cell, host: Host, matrix: Matrix) -> str | None:
    """Why this machine cannot build the cell and what would help; None if it can."""
    if host.compiler is None:
        return "no C++ compiler; install one (Debian: apt-get install g++) or set CXX"
    found, (low, high) = gcc_major(host.compiler), cell.torch.gcc
    if found is not None and not low <= found <= high:
        text = f"{host.compiler} is outside g++ {low} to {high} for torch {cell.torch_minor}"
        return f"{text}; set CXX to one of those"
    if cell.cxx11_abi != cell.torch.abi.pypi and borrowed_torch(cell, host) is None:
        return (
            f"needs a torch {cell.torch_minor} with C++ ABI {cell.cxx11_abi} (conda-forge's), and "
            f"PyPI's has {cell.torch.abi.pypi}; activate an environment with one (conda install -c "
            f"conda-forge pytorch={cell.torch_minor}) and run the same again"
        )
    if host.python_minor not in cell.torch.pythons:
        text = f"torch {cell.torch_minor} has no wheel for Python {host.python_minor}"
        return f"{text}; set PYTHON to a Python {' or '.join(cell.torch.pythons)}"
    if cell.cuda_major is not None:
        return _cuda_obstacle(cell, host, matrix)
    return None


def borrowed_torch(cell: Cell, host: Host) -> TorchInstall | None:
    """The torch of the calling environment, for a cell whose C++ ABI PyPI's torch lacks."""
    torch = host.torch
    if torch is None or cell.stable or cell.cxx11_abi == cell.torch.abi.pypi:
        return None
    fits = (torch.version_tuple, torch.cxx11_abi) == (cell.variant.glue.torch, cell.cxx11_abi)
    return torch if fits and torch.is_release else None


def toolchain(kernels: str, host: Host, matrix: Matrix) -> Toolchain | str | None:
    """What compiles a kernel object here, or why nothing does; None for the CPU's kernels."""
    wanted = matrix.kernels[kernels]  # type: ignore[index]
    return toolchains.choose(wanted, matrix, host.cuda) if wanted.toolkit else None


def _cuda_obstacle(cell: Cell, host: Host, matrix: Matrix) -> str | None:
    chosen = toolchain(str(cell.variant.kernels), host, matrix)
    if not isinstance(chosen, Toolchain):
        return chosen
    if chosen.clang is not None:
        return None
    bounds = matrix.toolkits[chosen.version].gcc
    found = gcc_major(host.compiler)
    if found is not None and not bounds[0] <= found <= bounds[1]:
        text = f"CUDA {chosen.version} takes g++ {bounds[0]} to {bounds[1]}, got {host.compiler}"
        return f"{text}; set CXX to one of those"
    return None


def host_cell(matrix: Matrix, host: Host) -> Cell:
    """The cell for the torch of the calling environment, or the default one without a torch.

    Raises:
        ReleaseError: no cell of the matrix serves that torch.
    """
    cells = {cell.name: cell for cell in all_cells(matrix)}
    if host.torch is None:
        return cells[f"{stable_glue(matrix)}-cpu"]
    try:
        glue = glue_for(host.torch, PROJECT)
    except BuildError as error:
        raise ReleaseError(str(error)) from error
    device = "cpu"
    if host.torch.cuda_major is not None:
        wanted = f"{glue}-cu{host.torch.cuda_major}"
        if wanted in cells and not obstacle(cells[wanted], host, matrix):
            device = f"cu{host.torch.cuda_major}"
    name = f"{glue}-{device}"
    if name not in cells:
        text = (
            f"torch {host.torch.version} in {host.torch.root} needs {name}, which the matrix lacks"
        )
        raise ReleaseError(f"{text}; there are: {', '.join(cells)}")
    return cells[name]


def chosen(selectors: Sequence[str], matrix: Matrix, host: Host) -> list[Cell]:
    """The selected cells of the matrix; `host` stands for the one that fits this machine."""
    fits = host_cell(matrix, host).name if "host" in selectors else ""
    return select(all_cells(matrix), selectors, fits)


def stable_glue(matrix: Matrix) -> str:
    return "stable" + matrix.stable.target.replace(".", "")
