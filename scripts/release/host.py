"""What this machine has: an interpreter with or without torch, compilers, CUDA, a driver."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.builder import BuildError, HostCompiler, find_host_compiler, glue_for
from engine.compat.records import TorchInstall
from engine.compat.torch_probe import TorchNotFoundError, find_torch
from release import FOREIGN, PROJECT, ReleaseError, emulation, toolchains
from release.cells import Cell, all_cells, select
from release.environments import python_facts
from release.schema import Matrix
from release.toolchains import Compilers, Toolchain


@dataclass(frozen=True)
class Host:
    """The facts that decide which cells this machine can build.

    Attributes:
        python: the interpreter from which environments are made: the base interpreter of the one
            that started the tool, even if a virtual environment is active.
        emulator: the program that runs another platform's programs; None for this machine's own.
    """

    python: str
    python_minor: str
    torch: TorchInstall | None
    compiler: HostCompiler | None
    cuda: Compilers = field(default_factory=Compilers)
    driver: bool = False
    emulator: str | None = None


def probe(python: str, matrix: Matrix) -> Host:
    """Looks at this machine; `python` is the interpreter of the calling environment."""
    try:
        compiler = find_host_compiler(emulation.compilers(os.environ))
    except BuildError:
        compiler = None
    cuda = toolchains.probe(matrix)
    if FOREIGN:
        minor = emulation.python_minor()
        return Host(str(emulation.PYTHON), minor, None, compiler, cuda, False, emulation.version())
    facts = python_facts(python)
    try:
        torch = find_torch(python=python)
    except TorchNotFoundError:
        torch = None
    driver = Path("/proc/driver/nvidia/version").exists()
    return Host(facts["exe"], facts["minor"], torch, compiler, cuda, driver)


def obstacle(cell: Cell, host: Host, matrix: Matrix) -> str | None:
    """Why this machine cannot build the cell and what would help; None if it can."""
    if host.compiler is None and not FOREIGN:
        return "no C++ compiler; install one (Debian: apt-get install g++) or set CXX"
    if missing := emulation.missing(host.compiler):
        return missing
    if problem := _compiler_problem(host, cell.torch.gcc, f"torch {cell.torch_minor}"):
        return problem
    if cell.optional and borrowed_torch(cell, host) is None:
        return (
            f"needs a torch {cell.torch_minor} with C++ ABI {cell.cxx11_abi} (conda-forge's), and "
            f"PyPI's has {cell.torch.abi.pypi}; activate an environment with one (conda install -c "
            f"conda-forge pytorch={cell.torch_minor}) and run the same again"
        )
    if host.python_minor not in cell.torch.pythons:
        text = f"torch {cell.torch_minor} has no wheel for Python {host.python_minor}"
        return f"{text}; set PYTHON to a Python {' or '.join(cell.torch.pythons)}"
    if cell.cuda_major is None:
        return None
    chosen = toolchain(str(cell.variant.kernels), host, matrix)
    if not isinstance(chosen, Toolchain):
        return chosen
    bounds = matrix.toolkits[chosen.version].gcc
    is_nvcc = chosen.clang is None
    return _compiler_problem(host, bounds, f"CUDA {chosen.version}") if is_nvcc else None


def _compiler_problem(host: Host, bounds: tuple[int, int], user: str) -> str | None:
    low, high = bounds
    found = re.match(r"(?:g\+\+|gcc|c\+\+)\S* (\d+)", str(host.compiler))
    if found is None or low <= int(found[1]) <= high:
        return None
    return f"{user} takes g++ {low} to {high}, got {host.compiler}; set CXX to one of those"


def borrowed_torch(cell: Cell, host: Host) -> TorchInstall | None:
    """The torch of the calling environment, for a cell whose C++ ABI PyPI's torch lacks."""
    torch = host.torch
    if torch is None or not cell.optional:
        return None
    fits = (torch.version_tuple, torch.cxx11_abi) == (cell.variant.glue.torch, cell.cxx11_abi)
    return torch if fits and torch.is_release else None


def toolchain(kernels: str, host: Host, matrix: Matrix) -> Toolchain | str | None:
    """The toolchain for a kernel object here, or why there is none; None for the CPU's kernels."""
    wanted = matrix.kernels[kernels]  # type: ignore[index]
    return toolchains.choose(wanted, matrix, host.cuda) if wanted.toolkit else None


def host_cell(matrix: Matrix, host: Host) -> Cell:
    """The cell for the torch of the calling environment, or the default one without a torch."""
    cells = {str(cell.variant): cell for cell in all_cells(matrix)}
    if host.torch is None:
        return cells[f"stable{matrix.stable.target.replace('.', '')}-cpu"]
    try:
        glue = glue_for(host.torch, PROJECT)
    except BuildError as error:
        raise ReleaseError(str(error)) from error
    cuda = cells.get(f"{glue}-cu{host.torch.cuda_major}")  # None for a CPU build of torch
    if cuda and not obstacle(cuda, host, matrix):
        return cuda
    name = f"{glue}-cpu"
    if name not in cells:
        text = f"{host.torch.root}: torch {host.torch.version} needs {name}, which the matrix lacks"
        raise ReleaseError(f"{text}; there are: {', '.join(cells)}")
    return cells[name]


def chosen(selectors: Sequence[str], matrix: Matrix, host: Host) -> list[Cell]:
    """The selected cells of the matrix; `host` stands for the one that fits this machine."""
    fits = host_cell(matrix, host).name if "host" in selectors else ""
    return select(all_cells(matrix), selectors, fits)
