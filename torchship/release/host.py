"""Finds this machine's compilers and torch, and the reason why the machine cannot build a cell."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..builder import BuildError, HostCompiler, find_host_compiler, glue_for
from ..doctor.records import TorchInstall
from ..doctor.torch_probe import TorchNotFoundError, find_torch
from . import FOREIGN, PROJECT, ReleaseError, emulation, toolchains
from .cells import Cell, all_cells, select
from .environments import python_facts
from .schema import Matrix
from .toolchains import Compilers, Toolchain


@dataclass(frozen=True)
class Host:
    """The facts about this machine that a run needs.

    New environments are made from `python`: the base interpreter of the calling environment, or the
    emulated one of another platform. `emulator` is qemu's name and version in a run for another
    platform, in which `driver` (is there an NVIDIA driver?) is False.
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
    compiler = torch = None
    with suppress(BuildError):
        compiler = find_host_compiler(emulation.compilers(os.environ))
    cuda = toolchains.probe(matrix)
    if FOREIGN:
        minor = emulation.python_minor()
        return Host(str(emulation.PYTHON), minor, None, compiler, cuda, False, emulation.version())
    facts = python_facts(python)
    with suppress(TorchNotFoundError):
        torch = find_torch(python=python)
    driver = Path("/proc/driver/nvidia/version").exists()
    return Host(facts["exe"], facts["minor"], torch, compiler, cuda, driver)


def obstacle(cell: Cell, host: Host, matrix: Matrix) -> str | None:
    """The reason why this machine cannot build the cell, with a remedy; None if it can."""
    if host.compiler is None and not FOREIGN:
        return "no C++ compiler; install one (Debian: apt-get install g++) or set CXX"
    if missing := emulation.missing(host.compiler):
        return missing
    if problem := _compiler_problem(host, *cell.torch.gcc, f"torch {cell.torch_minor}"):
        return problem
    if cell.optional and borrowed_torch(cell, host) is None:
        return (
            f"needs a torch {cell.torch_minor} with C++ ABI {cell.cxx11_abi} (conda-forge's), but "
            f"PyPI's has {cell.torch.abi.pypi}; activate an environment with that torch (conda "
            f"install -c conda-forge pytorch={cell.torch_minor}) and run the same again"
        )
    if host.python_minor not in cell.torch.pythons:
        text = f"torch {cell.torch_minor} has no wheel for Python {host.python_minor}"
        return f"{text}; set PYTHON to a Python {' or '.join(cell.torch.pythons)}"
    chosen = toolchain(str(cell.variant.kernels), host, matrix)
    if isinstance(chosen, Toolchain) and chosen.clang is None:
        gcc = matrix.toolkits[chosen.version].gcc
        return _compiler_problem(host, *gcc, f"CUDA {chosen.version}")
    return chosen if isinstance(chosen, str) else None


def _compiler_problem(host: Host, low: int, high: int, user: str) -> str | None:
    found = re.match(r"(?:g\+\+|gcc|c\+\+)\S* (\d+)", str(host.compiler))
    if found is None or low <= int(found[1]) <= high:
        return None
    return f"{user} takes g++ {low} to {high}, got {host.compiler}; set CXX to a g++ in this range"


def borrowed_torch(cell: Cell, host: Host) -> TorchInstall | None:
    """The environment's torch if it is a release that an optional cell's glue serves, else None."""
    torch = host.torch
    fits = torch and cell.optional and torch.is_release and cell.variant.glue.serves(torch)
    return torch if fits else None


def toolchain(kernels: str, host: Host, matrix: Matrix) -> Toolchain | str | None:
    """The toolchain for CUDA kernels, or the reason why there is none; None for CPU kernels."""
    wanted = matrix.kernels.get(kernels)  # type: ignore[call-overload]
    return toolchains.choose(wanted, matrix, host.cuda) if wanted and wanted.toolkit else None


def host_cell(matrix: Matrix, host: Host) -> Cell:
    """The cell for the host's torch, of CUDA if buildable; without torch, the stable CPU cell."""
    cells = {str(cell.variant): cell for cell in all_cells(matrix)}
    if host.torch is None:
        return cells[f"stable{matrix.stable.target.replace('.', '')}-cpu"]
    try:
        glue = glue_for(host.torch, PROJECT)
    except BuildError as error:
        raise ReleaseError(str(error)) from error
    cuda = cells.get(f"{glue}-cu{host.torch.cuda_major}")  # None also for a CPU build of torch
    if cuda and not obstacle(cuda, host, matrix):
        return cuda
    name = f"{glue}-cpu"
    if name not in cells:
        text = f"{host.torch.root}: torch {host.torch.version} needs {name}, which the matrix lacks"
        raise ReleaseError(f"{text}; there are: {', '.join(cells)}")
    return cells[name]


def chosen(selectors: Sequence[str], matrix: Matrix, host: Host) -> list[Cell]:
    """The cells of the matrix that the selectors name; the selector `host` names `host_cell`."""
    fits = host_cell(matrix, host).name if "host" in selectors else ""
    return select(all_cells(matrix), selectors, fits)
