"""Chooses what compiles a CUDA kernel object on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.builder import BuildError, CudaToolkit, find_cuda_toolkits
from release.schema import Kernels, Matrix, Toolkit

NEWEST_CLANG = 30  # the tool looks for clang++-NN below this number


@dataclass(frozen=True)
class Compilers:
    """CUDA toolkits, clang++ by major version, and packages of the matrix that apt can fetch."""

    nvccs: tuple[CudaToolkit, ...] = ()
    clangs: tuple[tuple[int, str], ...] = ()
    debian: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Toolchain:
    """How a CUDA kernel object is compiled.

    Attributes:
        nvcc: the installed toolkit, None if one is made.
        clang: the clang++ command; empty for the one in Debian's package; None for nvcc.
        fatbinary: the toolchain whose program `fatbinary` clang needs.
    """

    version: str
    nvcc: CudaToolkit | None = None
    clang: str | None = None
    fatbinary: Toolchain | None = None

    @property
    def name(self) -> str:
        """`cuda-13.0` or `clang-cuda-12.8`."""
        return f"{'cuda' if self.clang is None else 'clang-cuda'}-{self.version}"

    def __str__(self) -> str:
        if self.nvcc:
            return f"nvcc {self.nvcc.version_text}"
        if self.clang is None:
            return f"nvcc {self.version} of PyPI"
        kind = self.clang or "Debian's clang++"
        return f"{kind} with the headers and ptxas of CUDA {self.version} from PyPI"


def probe(matrix: Matrix) -> Compilers:
    """Looks for compilers on this machine and asks for their versions; compiles nothing."""
    try:
        nvccs = tuple(find_cuda_toolkits(os.environ))
    except BuildError:
        nvccs = ()
    wanted = [toolkit.clang for toolkit in matrix.toolkits.values() if toolkit.clang]
    debian = frozenset(clang.debian for clang in wanted if can_fetch(clang.debian))
    lowest = min((clang.major for clang in wanted), default=NEWEST_CLANG)
    return Compilers(nvccs, tuple(_clangs(lowest)), debian)


def _clangs(lowest: int) -> Iterator[tuple[int, str]]:
    names = ["clang++", *(f"clang++-{major}" for major in range(lowest, NEWEST_CLANG))]
    for path in filter(None, map(shutil.which, names)):
        done = subprocess.run([path, "--version"], capture_output=True, text=True)
        if found := re.search(r"clang version (\d+)", done.stdout):
            yield int(found[1]), path


def can_fetch(package: str) -> bool:
    """Whether apt is installed and finds the package."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return False
    done = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True)
    found = re.search(r"Candidate: (\S+)", done.stdout)
    return found is not None and found[1] != "(none)"


def choose(kernels: Kernels, matrix: Matrix, compilers: Compilers) -> Toolchain | str:
    """The toolchain for a CUDA kernel object, or why there is none and what would help.

    In this order: an installed nvcc of the matrix's version, an installed one of the same major
    that compiles for all architectures, an nvcc from PyPI's wheels, clang.
    """
    version = str(kernels.toolkit)
    wheels = matrix.toolkits[version]
    if installed := _installed(version, kernels, compilers):
        return Toolchain(version, nvcc=installed)
    if wheels.nvcc:
        return Toolchain(version)
    return _by_clang(version, wheels, matrix, compilers)


def _installed(version: str, kernels: Kernels, compilers: Compilers) -> CudaToolkit | None:
    of_major = [nvcc for nvcc in compilers.nvccs if nvcc.version[0] == kernels.cuda_major]
    exact = [nvcc for nvcc in of_major if nvcc.version_text == version]
    numbers = {arch.split("_")[1] for arch in kernels.archs}
    for nvcc in exact or of_major:
        if numbers <= nvcc.architectures():
            return nvcc
    return None


def _by_clang(
    version: str, wheels: Toolkit, matrix: Matrix, compilers: Compilers
) -> Toolchain | str:
    major = version.split(".")[0]
    missing = f"no nvcc {major}.x that compiles all architectures (PyPI's wheels of it hold none)"
    if wheels.clang is None:
        return f"{missing}; install CUDA {version} and set CUDA_HOME"
    clangs = [path for found, path in compilers.clangs if found >= wheels.clang.major]
    if not clangs and wheels.clang.debian not in compilers.debian:
        return (
            f"{missing} and no clang++ {wheels.clang.major} or newer; install CUDA {version} and "
            f"set CUDA_HOME, or install clang (Debian: apt-get install {wheels.clang.debian}; "
            "where apt knows no such package: apt-get update)"
        )
    helper = next(k for k in matrix.kernels.values() if k.toolkit == wheels.clang.fatbinary)
    fatbinary = choose(helper, matrix, compilers)
    if isinstance(fatbinary, str):
        return f"clang needs the fatbinary of CUDA {wheels.clang.fatbinary}: {fatbinary}"
    return Toolchain(version, clang=clangs[0] if clangs else "", fatbinary=fatbinary)


def home_of(path: Path) -> Path:
    """The CUDA folder where PyPI's wheels were installed."""
    (home,) = path.glob("nvidia/cu*")
    return home
