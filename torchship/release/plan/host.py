"""Finds what this machine has, which cells a run takes, and why the machine cannot build a cell."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...builder import BuildError, find_host_compiler, glue_for
from ...judge.machine.torch_probe import TorchNotFoundError, find_torch
from ...judge.records import GlueName
from .. import ReleaseError
from ..matrix.cells import Cell, all_cells, select
from ..matrix.schema import Matrix, pair
from ..matrix.settings import Settings
from ..steps.compile import emulation
from ..steps.compile.environments import borrowed_torch, python_facts
from ..steps.compile.toolchains import Toolchain, probe_compilers, toolchain_of
from .machine import Host


def probe(python: str, settings: Settings) -> Host:
    """Looks at this machine; `python` is the interpreter of the calling environment."""
    compiler = None
    with suppress(BuildError):
        compiler = find_host_compiler(emulation.compilers(os.environ, settings))
    cuda = probe_compilers(settings.matrix)
    if settings.is_foreign:
        return Host(
            python=str(emulation.python_of(settings)),
            python_minor=emulation.python_minor(),
            torch=None,
            compiler=compiler,
            cuda=cuda,
            emulator=emulation.version(settings),
        )
    facts = python_facts(python)
    torch = None
    with suppress(TorchNotFoundError):
        torch = find_torch(python=python)
    return Host(
        python=facts["exe"],
        python_minor=facts["minor"],
        torch=torch,
        compiler=compiler,
        cuda=cuda,
        driver=Path("/proc/driver/nvidia/version").exists(),
    )


def obstacle(cell: Cell, host: Host, settings: Settings) -> str | None:
    """The reason why this machine cannot build the cell, with a remedy; None if it can."""
    if host.compiler is None and not settings.is_foreign:
        return "no C++ compiler; install one (Debian: apt-get install g++) or set CXX"
    return (
        emulation.missing(host.compiler, settings)
        or _compiler_obstacle(host, cell.torch.gcc, f"torch {cell.torch_minor}")
        or _headers_obstacle(cell, host)
        or _torch_obstacle(cell, host)
        or _cuda_obstacle(cell, host, settings.matrix)
    )


def _headers_obstacle(cell: Cell, host: Host) -> str | None:
    if cell.headers is None:
        return None
    return _compiler_obstacle(host, cell.headers.gcc, f"torch {cell.headers.release}")


def _torch_obstacle(cell: Cell, host: Host) -> str | None:
    borrowed = borrowed_torch(cell, host)
    if cell.optional and borrowed is None:
        return (
            f"needs a torch {cell.torch_minor} with C++ ABI {cell.cxx11_abi} (conda-forge's), but "
            f"PyPI's has {cell.torch.abi.pypi}; activate an environment with that torch (conda "
            f"install -c conda-forge pytorch={cell.torch_minor}) and run the same again"
        )
    if borrowed and cell.needs_cuda_torch and borrowed.cuda_major != cell.cuda_major:
        return (
            f"needs a torch for CUDA {cell.cuda_major}, since its glue has CUDA code with ATen's "
            f"headers, got torch {borrowed.version} for {borrowed.device}; activate an "
            "environment with such a torch and run the same again"
        )
    if host.python_minor not in cell.torch.pythons:
        return (
            f"torch {cell.torch_minor} has no wheel for Python {host.python_minor}; "
            f"set PYTHON to a Python {' or '.join(cell.torch.pythons)}"
        )
    return None


def _cuda_obstacle(cell: Cell, host: Host, matrix: Matrix) -> str | None:
    choice = toolchain_of(str(cell.variant.kernels), host, matrix)
    if isinstance(choice, Toolchain) and choice.clang is None:
        # An installed nvcc may be of a later minor than the one that the matrix names.
        version = choice.nvcc.version_text if choice.nvcc else choice.version
        toolkit = matrix.toolkits.get(version) or matrix.toolkits[choice.version]
        return _compiler_obstacle(host, toolkit.gcc, f"CUDA {version}")
    return choice if isinstance(choice, str) else None


def _compiler_obstacle(host: Host, majors: tuple[int, int], user: str) -> str | None:
    """Why `user`, which takes g++ of these majors, does not take the host's compiler."""
    low, high = majors
    gxx = re.match(r"(?:g\+\+|gcc|c\+\+)\S* (\d+)", str(host.compiler))
    if gxx is None or low <= int(gxx[1]) <= high:
        return None
    return f"{user} takes g++ {low} to {high}, got {host.compiler}; set CXX to a g++ in this range"


def host_cell(host: Host, settings: Settings) -> Cell:
    """The cell for the host's torch, of CUDA if buildable, else for the CPU.

    Without torch, the glue is that of the matrix's default torch. Where the matrix has no CPU cell
    for the glue, the cell is of the newest CUDA that this machine can build, or else of the newest.
    """
    glue = _host_glue(host, settings)
    cells = {cell.device: cell for cell in all_cells(settings.matrix) if cell.glue == glue}
    if not cells:
        if host.torch is None:
            return all_cells(settings.matrix)[0]
        raise ReleaseError(
            f"torch {host.torch.version} needs the glue {glue}, of which the matrix has no cell; "
            f"there are: {', '.join(cell.name for cell in all_cells(settings.matrix))}"
        )
    # None also without torch, or for a CPU build of torch.
    cuda = cells.get(f"cu{host.torch.cuda_major}") if host.torch else None
    if cuda and not obstacle(cuda, host, settings):
        return cuda
    if "cpu" in cells:
        return cells["cpu"]
    newest_first = sorted(cells.values(), key=lambda cell: cell.cuda_major or 0, reverse=True)
    buildable = [cell for cell in newest_first if not obstacle(cell, host, settings)]
    return (buildable or newest_first)[0]


def _host_glue(host: Host, settings: Settings) -> str:
    matrix = settings.matrix
    if host.torch is None:
        minor = matrix.package.default_torch
        if settings.project.is_stable and pair(minor) >= pair(matrix.stable.target):
            return str(GlueName("stable", pair(matrix.stable.target)))
        return str(GlueName("aten", pair(minor), matrix.torch[minor].abi.pypi))
    try:
        return glue_for(host.torch, settings.project)
    except BuildError as error:
        raise ReleaseError(str(error)) from error


def chosen_cells(selectors: Sequence[str], host: Host, settings: Settings) -> list[Cell]:
    """The cells of the matrix that the selectors name; none if they name only tools.

    The selector `host` names `host_cell`.
    """
    tools = {tool.name for tool in settings.matrix.tools}
    own = [selector for selector in selectors if selector not in tools]
    if selectors and not own:
        return []
    name = host_cell(host, settings).name if "host" in selectors else ""
    cells = select(all_cells(settings.matrix), own, name)
    return [_fitted(cell, host) if cell.name == name else cell for cell in cells]


def _fitted(cell: Cell, host: Host) -> Cell:
    """The cell with the headers of its own torch if the compiler is too old for the others.

    Those of a release only make some error messages better, so the host's cell does not need them.
    """
    return replace(cell, headers=None) if _headers_obstacle(cell, host) else cell
