"""Chooses the CUDA compiler for a kernel object, and installs it from PyPI and Debian if needed."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import builder
from . import BUILD
from .environments import apt, uv
from .paths import fresh, write_script
from .schema import Kernels, Matrix, Toolkit
from .shell import Log, output_of
from .tasks import Context

ADAPTER = Path(__file__).with_name("fatbinary.py")
LIBRARIES = "usr/lib/x86_64-linux-gnu"  # in Debian's packages
NEWEST_CLANG = 30  # the tool looks for clang++-NN with NN below this number


@dataclass(frozen=True)
class Compilers:
    """The installed nvccs, the installed clang++s (major, path), and the clang packages of apt."""

    nvccs: tuple[builder.CudaToolkit, ...] = ()
    clangs: tuple[tuple[int, str], ...] = ()
    debian: frozenset[str] = frozenset()


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


def probe(matrix: Matrix) -> Compilers:
    """Finds the CUDA compilers of this machine, and the matrix's clang packages in apt."""
    try:
        nvccs = tuple(builder.find_cuda_toolkits(os.environ))
    except builder.BuildError:
        nvccs = ()
    wanted = [toolkit.clang for toolkit in matrix.toolkits.values() if toolkit.clang]
    debian = frozenset(clang.debian for clang in wanted if can_fetch(clang.debian))
    lowest = min((clang.major for clang in wanted), default=NEWEST_CLANG)
    names = ["clang++", *(f"clang++-{major}" for major in range(lowest, NEWEST_CLANG))]
    clangs = []
    for path in filter(None, map(shutil.which, names)):
        if found := re.search(r"clang version (\d+)", output_of(path, "--version") or ""):
            clangs.append((int(found[1]), path))
    return Compilers(nvccs, tuple(clangs), debian)


def can_fetch(package: str) -> bool:
    """Whether apt-get and dpkg are installed and apt finds the package."""
    found = re.search(r"Candidate: (?!\(none\))\S", output_of("apt-cache", "policy", package) or "")
    return bool(found and shutil.which("apt-get") and shutil.which("dpkg"))


def choose(kernels: Kernels, matrix: Matrix, compilers: Compilers) -> Toolchain | str:
    """The toolchain for a CUDA kernel object, or the reason why there is none, with a remedy.

    The first choice is an installed nvcc that compiles for all architectures: of the matrix's
    version, or of that version's major if the version is not installed. The next choices are an
    nvcc from PyPI's wheels, an installed clang++, and Debian's clang++, in this order.
    """
    version, major = str(kernels.toolkit), kernels.cuda_major
    wheels = matrix.toolkits[version]
    of_major = [nvcc for nvcc in compilers.nvccs if nvcc.version[0] == major]
    exact = [nvcc for nvcc in of_major if nvcc.version_text == version]
    numbers = {arch.split("_")[1] for arch in kernels.archs}
    for nvcc in exact or of_major:
        if numbers <= nvcc.architectures():
            return Toolchain(version, nvcc=nvcc)
    if wheels.nvcc:
        return Toolchain(version)
    missing = f"no nvcc {major}.x for all architectures (PyPI's wheels of {version} have no nvcc)"
    if wheels.clang is None:
        return f"{missing}; install CUDA {version} and set CUDA_HOME"
    clangs = [path for found, path in compilers.clangs if found >= wheels.clang.major]
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


def toolkit(context: Context, *, toolchain: Toolchain, wheels: Toolkit) -> Sequence[Path]:
    """Makes a toolkit's folder from PyPI's wheels, and if needed from Debian's clang package."""
    folder = fresh(BUILD / "toolkits" / toolchain.name)
    target = folder if toolchain.clang is None else folder / "wheels"
    words = ["pip", "install", "--target", target, "--python", sys.executable, *wheels.pypi]
    # clang needs the program `fatbinary`, which only wheels with an nvcc have.
    uv(context.log, words + [f"nvidia-cuda-nvcc=={c.fatbinary}.*" for c in [wheels.clang] if c])
    if toolchain.clang is None:
        # nvcc and the linker look for these two names, which the wheels lack.
        home = home_of(folder)
        (runtime, *_) = home.glob("lib/libcudart.so.*")
        for link, name in ((home / "lib64", "lib"), (home / "lib" / "libcudart.so", runtime.name)):
            if not link.exists():
                link.symlink_to(name)
        return [folder]
    # The folders of the wheels become one folder, in the layout that clang expects.
    cuda, left_out = folder / "cuda", shutil.ignore_patterns("__init__.py", "__pycache__")
    for part in sorted(path for path in target.glob("nvidia/*") if path.is_dir()):
        if part != home_of(target):
            shutil.copytree(part, cuda, ignore=left_out, dirs_exist_ok=True)
    (cuda / "lib").rename(cuda / "lib64")
    for library in cuda.glob("lib64/libcudart.so.*"):
        (cuda / "lib64" / "libcudart.so").symlink_to(library.name)
    programs = cuda / "bin"
    shutil.copy2(home_of(target) / "bin" / "fatbinary", programs / "fatbinary.nvidia")
    shutil.rmtree(target)
    shutil.copy(ADAPTER, programs / "fatbinary")
    (programs / "fatbinary").chmod(0o755)
    if not toolchain.clang:
        _debian_clang(context.log, wheels.clang.debian, folder / "clang")
    return [folder]


def runtime(context: Context, *, version: str, python: str) -> Sequence[Path]:
    """Installs CUDA's runtime for the platform of `python`; the output is the library's folder."""
    folder = fresh(BUILD / "toolkits" / f"runtime-{version}")
    words = ["pip", "install", "--target", folder, "--python", python]
    uv(context.log, [*words, f"cuda-toolkit[cudart]=={version}.*"])
    return [home_of(folder) / "lib"]


def resolve(toolchain: Toolchain, made: Path | None) -> builder.CudaToolkit | builder.ClangToolkit:
    """The toolkit for the builder; `made` is the folder from :func:`toolkit`, or None."""
    if toolchain.nvcc:
        return toolchain.nvcc
    if toolchain.clang is not None:
        major, minor = map(int, toolchain.version.split("."))
        clang = toolchain.clang or str(made / "clang" / "bin" / "clang++")
        return builder.ClangToolkit(clang, made / "cuda", (major, minor))
    return builder.find_cuda_toolkit({**os.environ, "CUDA_HOME": str(home_of(made))})


def _debian_clang(log: Log, package: str, folder: Path) -> None:
    """Unpacks Debian's clang and libraries missing on this machine; writes a script to start it."""
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
