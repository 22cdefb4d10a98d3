"""Chooses the CUDA compiler for a kernel object, and installs it from PyPI and Debian if needed."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .... import builder
from ... import ReleaseError
from ...matrix.cells import Cell
from ...matrix.schema import Kernels, Matrix, Toolkit
from ...paths import fresh, write_script
from ...plan.machine import Compilers, Host
from ...plan.plan import Plan
from ...run.shell import Log, output_of
from ...run.tasks import Context, FileTask
from . import emulation
from .downloads import apt, uv

ADAPTER = Path(__file__).with_name("fatbinary.py")
LIBRARIES = "usr/lib/x86_64-linux-gnu"  # in Debian's packages
NEWEST_CLANG = 30  # the tool looks for clang++-NN with NN below this number


@dataclass(frozen=True)
class Toolchain:
    """The tools that compile a CUDA kernel object: nvcc, or clang++ if `clang` is not None.

    `nvcc` is None for a toolkit from PyPI's wheels, `clang` is "" for Debian's clang++.
    """

    version: str
    nvcc: builder.CudaToolkit | None = None
    clang: str | None = None

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


def probe_compilers(matrix: Matrix) -> Compilers:
    """Finds the CUDA compilers of this machine, and the matrix's clang packages in apt."""
    try:
        nvccs = tuple(builder.find_cuda_toolkits(os.environ))
    except builder.BuildError:
        nvccs = ()
    of_matrix = [toolkit.clang for toolkit in matrix.toolkits.values() if toolkit.clang]
    debian = frozenset(clang.debian for clang in of_matrix if can_fetch(clang.debian))
    lowest = min((clang.major for clang in of_matrix), default=NEWEST_CLANG)
    names = ["clang++", *(f"clang++-{major}" for major in range(lowest, NEWEST_CLANG))]
    clangs = []
    for path in filter(None, map(shutil.which, names)):
        if match := re.search(r"clang version (\d+)", output_of(path, "--version") or ""):
            clangs.append((int(match[1]), path))
    return Compilers(nvccs, tuple(clangs), debian)


def can_fetch(package: str) -> bool:
    """Whether apt-get and dpkg are installed and apt finds the package."""
    policy = output_of("apt-cache", "policy", package) or ""
    has_candidate = re.search(r"Candidate: (?!\(none\))\S", policy) is not None
    return has_candidate and bool(shutil.which("apt-get") and shutil.which("dpkg"))


def choose(kernels: Kernels, matrix: Matrix, compilers: Compilers) -> Toolchain | str:
    """The toolchain for a CUDA kernel object, or the reason why there is none, with a remedy.

    The first choice is an installed nvcc that compiles for all architectures: of the
    matrix's version, or of that version's major if the version is not installed. The next
    choices are an nvcc from PyPI's wheels, an installed clang++, and Debian's clang++, in
    this order.
    """
    version = str(kernels.toolkit)
    major = kernels.cuda_major
    wheels = matrix.toolkits[version]
    of_major = [nvcc for nvcc in compilers.nvccs if nvcc.version[0] == major]
    exact = [nvcc for nvcc in of_major if nvcc.version_text == version]
    numbers = {arch.split("_")[1].rstrip("af") for arch in kernels.archs}
    for nvcc in exact or of_major:
        if numbers <= nvcc.architectures():
            return Toolchain(version, nvcc=nvcc)
    if wheels.nvcc:
        return Toolchain(version)
    missing = f"no nvcc {major}.x for all architectures (PyPI's wheels of {version} have no nvcc)"
    if wheels.clang is None:
        return f"{missing}; install CUDA {version} and set CUDA_HOME"
    clangs = [path for clang, path in compilers.clangs if clang >= wheels.clang.major]
    if not clangs and wheels.clang.debian not in compilers.debian:
        return (
            f"{missing} and no clang++ {wheels.clang.major} or newer; install CUDA {version} and "
            f"set CUDA_HOME, or install clang (Debian: apt-get install {wheels.clang.debian}; "
            "if apt does not find this package: apt-get update)"
        )
    return Toolchain(version, clang=clangs[0] if clangs else "")


def home_of(path: Path) -> Path:
    """The folder into which PyPI's wheels of CUDA 13 or newer install a toolkit below `path`."""
    (home,) = path.glob("nvidia/cu[0-9]*")
    return home


@dataclass(frozen=True, eq=False, kw_only=True)
class MakeToolkit(FileTask):
    """Makes a toolkit's folder from PyPI's wheels, and if needed from Debian's clang package."""

    toolchain: Toolchain
    wheels: Toolkit

    @classmethod
    def plan(cls, kernels: str, cell: Cell, plan: Plan) -> "MakeToolkit | None":
        """None for CPU kernels and for an installed nvcc."""
        choice = chosen_toolchain(kernels, plan)
        if choice is None or choice.nvcc:
            return None
        step = cls(
            name=f"toolkit/{choice.name}",
            toolchain=choice,
            wheels=plan.settings.matrix.toolkits[choice.version],
            inputs=(ADAPTER,),
        )
        return plan.add(step, cell)

    def run(self, context: Context) -> Sequence[Path]:
        folder = fresh(context.settings.toolkits / self.toolchain.name)
        if self.toolchain.clang is None:
            self._install_wheels(context.log, folder)
            _link_names_of_nvcc(home_of(folder))
        else:
            self._install_wheels(context.log, folder / "wheels")
            _arrange_for_clang(folder / "wheels", folder / "cuda")
        if self.toolchain.clang == "" and self.wheels.clang:
            _unpack_debian_clang(context.log, self.wheels.clang.debian, folder / "clang")
        return [folder]

    def _install_wheels(self, log: Log, folder: Path) -> None:
        requirements = [*self.wheels.pypi]
        if self.wheels.clang:
            # clang needs the program `fatbinary`, which only wheels with an nvcc have.
            requirements.append(f"nvidia-cuda-nvcc=={self.wheels.clang.fatbinary}.*")
        uv(log, ["pip", "install", "--target", folder, "--python", sys.executable, *requirements])


def _link_names_of_nvcc(home: Path) -> None:
    """Makes two names for which nvcc and the linker look, and which the wheels lack."""
    (runtime, *_) = home.glob("lib/libcudart.so.*")
    targets = {home / "lib64": "lib", home / "lib" / "libcudart.so": runtime.name}
    for link, target in targets.items():
        if not link.exists():
            link.symlink_to(target)


def _arrange_for_clang(wheels: Path, cuda: Path) -> None:
    """Moves the folders of the wheels into one folder, in the layout that clang expects."""
    home = home_of(wheels)
    ignored = shutil.ignore_patterns("__init__.py", "__pycache__")
    for part in sorted(path for path in wheels.glob("nvidia/*") if path.is_dir()):
        if part != home:
            shutil.copytree(part, cuda, ignore=ignored, dirs_exist_ok=True)
    (cuda / "lib").rename(cuda / "lib64")
    for library in cuda.glob("lib64/libcudart.so.*"):
        (cuda / "lib64" / "libcudart.so").symlink_to(library.name)
    programs = cuda / "bin"
    shutil.copy2(home / "bin" / "fatbinary", programs / "fatbinary.nvidia")
    shutil.rmtree(wheels)
    shutil.copy(ADAPTER, programs / "fatbinary")
    (programs / "fatbinary").chmod(0o755)


@dataclass(frozen=True, eq=False, kw_only=True)
class InstallRuntime(FileTask):
    """Installs CUDA's runtime for the platform of `python`.

    The output is the library's folder.
    """

    version: str
    python: str

    @classmethod
    def plan(cls, kernels: str, cell: Cell, plan: Plan) -> "InstallRuntime | None":
        """None for CPU kernels, and in a native run."""
        choice = chosen_toolchain(kernels, plan)
        if choice is None or not plan.settings.is_foreign:
            return None
        step = cls(
            name=f"toolkit/runtime-{choice.version}",
            version=choice.version,
            python=plan.host.python,
            after=emulation.tasks(cell, plan),
        )
        return plan.add(step, cell)

    def run(self, context: Context) -> Sequence[Path]:
        folder = fresh(context.settings.toolkits / f"runtime-{self.version}")
        requirement = f"cuda-toolkit[cudart]=={self.version}.*"
        uv(
            context.log,
            ["pip", "install", "--target", folder, "--python", self.python, requirement],
        )
        return [home_of(folder) / "lib"]


def resolve(
    toolchain: Toolchain, folder: Path | None
) -> builder.CudaToolkit | builder.ClangToolkit:
    """The toolkit for the builder.

    `folder` is the output of MakeToolkit; it is None for an installed nvcc.
    """
    if toolchain.nvcc:
        return toolchain.nvcc
    if folder is None:
        raise ValueError(f"{toolchain}: got no folder of a toolkit, needs that of MakeToolkit")
    if toolchain.clang is None:
        home = home_of(folder)
        nvcc = builder.find_cuda_toolkit({**os.environ, "CUDA_HOME": str(home)})
        if nvcc is None:
            raise ReleaseError(f"{home}: holds no nvcc; delete {folder} and run the same again")
        return nvcc
    major, minor = map(int, toolchain.version.split("."))
    clang = toolchain.clang or str(folder / "clang" / "bin" / "clang++")
    return builder.ClangToolkit(clang, folder / "cuda", (major, minor))


def _unpack_debian_clang(log: Log, package: str, folder: Path) -> None:
    """Unpacks Debian's clang and libraries missing on this machine.

    Writes a script to start it.
    """
    root = folder / "debian"
    apt(log, root, [package])
    (program,) = root.glob("usr/lib/llvm-*/bin/clang++")
    wrapper = folder / "bin" / "clang++"
    # The dynamic linker does not search these two folders by default.
    folders = (LIBRARIES, program.parents[1].relative_to(root) / "lib")
    paths = [f"$here/debian/{name}" for name in folders]
    write_script(
        wrapper,
        'here=$(dirname "$(dirname "$0")")\n'
        f'export LD_LIBRARY_PATH="{":".join(paths)}"\n'
        f'exec "$here/{program.relative_to(folder)}" "$@"',
    )
    log.run([wrapper, "--version"])


def toolchain_of(kernels: str, host: Host, matrix: Matrix) -> Toolchain | str | None:
    """The toolchain for CUDA kernels, or the reason why there is none.

    None for CPU kernels.
    """
    entry = matrix.kernels.get(kernels)
    return choose(entry, matrix, host.cuda) if entry and entry.toolkit else None


def chosen_toolchain(kernels: str, plan: Plan) -> Toolchain | None:
    """The toolchain of kernels in a plan; None for CPU kernels."""
    choice = toolchain_of(kernels, plan.host, plan.settings.matrix)
    return choice if isinstance(choice, Toolchain) else None
