"""nvcc and clang, the compilers for CUDA, and the GPU architectures that they compile for."""

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..judge.reading.fatbin import GENERATIONS
from ..judge.records import dotted
from .programs import BuildError, output_of

# Part of the error if no nvcc is found. The caller appends one more remedy.
NO_NVCC = (
    "looked in CUDA_HOME, PATH, /usr/local/cuda, CONDA_PREFIX and PyPI's cuda-toolkit. "
    'Install one (pip install "cuda-toolkit[nvcc,cudart,cccl]==13.0.*"), set CUDA_HOME'
)

# The advice if a program of a toolkit does not run.
REPAIR = "repair it, or set CUDA_HOME to a CUDA toolkit"

# The oldest CUDA and the oldest generation of GPUs that kernels are compiled for by default.
OLDEST_CUDA = 12
OLDEST_GENERATION = 7

# The variables that name a toolkit's folder; the first one that is set wins.
_VARIABLES = ("CUDA_HOME", "CUDA_PATH")

# NVIDIA's installers put toolkits beside this path, as `cuda-13.0`, and link the path to one.
SYSTEM_HOMES = (Path("/usr/local/cuda"),)


@dataclass(frozen=True)
class CudaToolkit:
    """A CUDA toolkit with nvcc."""

    nvcc: str
    version: tuple[int, int]
    library_dirs: tuple[str, ...] = ()  #: the folders that hold libcudart_static.a

    @property
    def version_text(self) -> str:
        return dotted(self.version)

    @cached_property
    def include_dirs(self) -> tuple[str, ...]:
        """The folders of CUDA's headers, as nvcc itself names them."""
        return self._folders("INCLUDES") or (str(Path(self.nvcc).parents[1] / "include"),)

    @cached_property
    def link_dirs(self) -> tuple[str, ...]:
        """The folders of CUDA's libraries: `library_dirs`, and those that nvcc itself names."""
        return (*self.library_dirs, *self._folders("LIBRARIES"))

    def _folders(self, variable: str) -> tuple[str, ...]:
        """The existing folders in the variables of this name that nvcc shows in a dry run."""
        # A wrapper of nvcc may lie elsewhere than the toolkit.
        output = output_of([self.nvcc, "-x", "cu", "--dryrun", os.devnull], REPAIR)
        values = " ".join(re.findall(rf"#\$ \w*{variable}=(.*)", output))
        folders = (Path(folder) for folder in re.findall(r'"(?:-[IL])?(/[^"]+)"', values))
        return tuple(str(folder.resolve()) for folder in folders if folder.is_dir())

    def architectures(self) -> frozenset[str]:
        """The architectures that nvcc compiles for, as `75`, `90`, ..."""
        output = output_of([self.nvcc, "--list-gpu-arch"], REPAIR)
        return frozenset(re.findall(r"compute_(\d+)", output))


@dataclass(frozen=True)
class ClangToolkit:
    """A clang++ that compiles CUDA, for a CUDA version without a usable nvcc.

    clang compiles for fewer architectures than ptxas. For newer ones, ptxas assembles the PTX
    of the newest architecture that clang compiles for. In `folder`, `bin/fatbinary` is a
    wrapper: it runs ptxas for ``--assemble=sm_NN``, and leaves out the image NAME for
    ``--drop=NAME``.
    """

    clang: str
    #: The rest of CUDA: include, lib64, bin/ptxas, bin/fatbinary, nvvm/libdevice.
    folder: Path
    version: tuple[int, int]

    @property
    def version_text(self) -> str:
        return dotted(self.version)

    @cached_property
    def name(self) -> str:
        """The compiler's name in build records: `clang++ 19.1.7`."""
        banner = output_of([self.clang, "--version"], REPAIR)
        version = re.search(r"version (\d+(?:\.\d+)+)", banner)
        return f"clang++ {version[1] if version else 'unknown'}"

    @cached_property
    def native(self) -> frozenset[str]:
        """The architectures that both clang and this ptxas compile for, as `75` and `90a`."""
        command = [self.clang, "--target=nvptx64-nvidia-cuda", "--print-supported-cpus"]
        return _printed_architectures(command) & self._assembled

    @cached_property
    def _assembled(self) -> frozenset[str]:
        """The architectures that ptxas compiles for."""
        return _printed_architectures([str(self.folder / "bin" / "ptxas"), "--help"])

    @property
    def _newest(self) -> str:
        if not self.native:
            raise BuildError(
                f"{self.clang} compiles for no architecture of CUDA {self.version_text}; "
                "set CUDA_HOME to a CUDA toolkit with nvcc, or install a newer clang"
            )
        return max((number for number in self.native if number.isdecimal()), key=int)

    def architectures(self) -> frozenset[str]:
        """The architectures that clang compiles for, and newer ones that ptxas assembles."""
        newest = int(self._newest)
        newer = {
            number for number in self._assembled if number.isdecimal() and int(number) > newest
        }
        return frozenset(number for number in self.native if number.isdecimal()) | newer

    def actual(self, architectures: Iterable[str]) -> list[str]:
        """The architectures that a build for `architectures` contains.

        PTX for an architecture outside `native` is replaced by PTX for the newest one in it.
        """
        contained = []
        for name in architectures:
            kind, _, number = name.partition("_")
            is_replaced = kind == "compute" and number not in self.native
            contained.append(f"compute_{self._newest}" if is_replaced else name)
        return list(dict.fromkeys(contained))

    def flags(self, architectures: Sequence[str]) -> list[str]:
        """clang's options for `sm_XY` (machine code) and `compute_XY` (PTX)."""
        code = [name.split("_")[1] for name in architectures if name.startswith("sm_")]
        ptx = {name.split("_")[1] for name in self.actual(architectures) if "compute" in name}
        assembled = [number for number in code if number not in self.native]
        if limited := [number for number in assembled if not number.isdecimal()]:
            raise BuildError(
                f"{self.clang} cannot compile for sm_{limited[0]}, whose instructions no PTX of an "
                "older architecture has; set CUDA_HOME to a CUDA toolkit with nvcc, or install a "
                "newer clang"
            )
        # ptxas assembles from the PTX of the newest architecture, which may not be asked for.
        included_ptx = {*ptx, self._newest} if assembled else ptx
        compiled = {*code, *included_ptx} & self.native
        fatbinary = [
            *(f"--assemble=sm_{number}" for number in assembled),
            *(f"--drop=sm_{number}" for number in sorted(compiled - {*code})),
            *(f"--drop=compute_{number}" for number in sorted(included_ptx - ptx)),
        ]
        return [
            *("-x", "cuda", f"--cuda-path={self.folder}", "-Wno-unknown-cuda-version"),
            *(f"--cuda-gpu-arch=sm_{number}" for number in sorted(compiled, key=_by_number)),
            "--no-cuda-include-ptx=all",
            *(f"--cuda-include-ptx=sm_{number}" for number in sorted(included_ptx, key=_by_number)),
            *(word for option in fatbinary for word in ("-Xcuda-fatbinary", option)),
        ]


def _printed_architectures(command: list[str]) -> frozenset[str]:
    """The `NN` of every `sm_NN` that a program prints, with its suffix `a` or `f` if it has one."""
    return frozenset(re.findall(r"\bsm_(\d+[af]?)\b", output_of(command, REPAIR)))


def _by_number(architecture: str) -> tuple[int, str]:
    """A sort key: `90`, `90a`, `100`."""
    return int(architecture.rstrip("af")), architecture


def find_cuda_toolkit(
    env: Mapping[str, str],
    site_packages: Iterable[Path] | None = None,
    *,
    major: int | None = None,
) -> CudaToolkit | None:
    """The toolkit that CUDA_HOME or CUDA_PATH names, else the first one found, or None.

    If neither variable is set, a toolkit of CUDA `major` comes before all others. The search
    order is nvcc on PATH, `/usr/local/cuda`, `/usr/local/cuda-*`, $CONDA_PREFIX, and in
    `site_packages` (by default, the folders from which the running Python imports)
    `cuda-toolkit[nvcc]` of PyPI.

    Raises:
        BuildError: the variable names a folder without nvcc, or an nvcc tells no release.
    """
    variable = next((name for name in _VARIABLES if env.get(name)), None)
    if variable and not _nvccs([Path(env[variable])]):
        raise BuildError(
            f"{variable}={env[variable]} holds no bin/nvcc; "
            "set it to a CUDA toolkit, or unset it to search for one"
        )
    toolkits = find_cuda_toolkits(env, site_packages)
    first = next(toolkits, None)
    if variable or first is None or major in (None, first.version[0]):
        return first
    return next((toolkit for toolkit in toolkits if toolkit.version[0] == major), first)


def find_cuda_toolkits(
    env: Mapping[str, str], site_packages: Iterable[Path] | None = None
) -> Iterator[CudaToolkit]:
    """The toolkits that variables name, then the others in :func:`find_cuda_toolkit`'s order."""
    named = _nvccs(Path(env[name]) for name in _VARIABLES if env.get(name))
    if on_path := shutil.which("nvcc", path=env.get("PATH")):
        named.append(Path(on_path))
    homes = [*SYSTEM_HOMES]
    for home in SYSTEM_HOMES:
        homes += sorted(home.parent.glob(f"{home.name}-*"), reverse=True)
    if env.get("CONDA_PREFIX"):
        homes.append(Path(env["CONDA_PREFIX"]))
    if site_packages is None:
        site_packages = [Path(sysconfig.get_path("purelib")), *map(Path, sys.path)]
    for folder in site_packages:
        homes += sorted(folder.glob("nvidia/cu*"), reverse=True)
    # One toolkit may be reached by several paths; the first one is kept.
    by_file: dict[Path, Path] = {}
    for path in (*named, *_nvccs(homes)):
        by_file.setdefault(path.resolve(), path)
    return map(_identify, by_file.values())


def _nvccs(homes: Iterable[Path]) -> list[Path]:
    return [home / "bin" / "nvcc" for home in homes if (home / "bin" / "nvcc").is_file()]


def _identify(nvcc: Path) -> CudaToolkit:
    banner = output_of([str(nvcc), "--version"], REPAIR)
    release = re.search(r"release (\d+)\.(\d+)", banner)
    if release is None:
        raise BuildError(f"{nvcc} --version names no release: {banner.strip()[-200:]!r}; {REPAIR}")
    home = nvcc.parents[1]
    # PyPI's toolkit has its libraries in lib, but nvcc looks for them in lib64.
    library_dirs = tuple(
        str(home / name)
        for name in ("lib64", "lib")
        if (home / name / "libcudart_static.a").exists()
    )
    return CudaToolkit(
        nvcc=str(nvcc),
        version=(int(release[1]), int(release[2])),
        library_dirs=library_dirs,
    )


def default_architectures(version: tuple[int, int], compilable: frozenset[str]) -> str:
    """The default architectures, in the syntax of TORCH_CUDA_ARCH_LIST.

    For each generation (major of the compute capability) from OLDEST_GENERATION on, they hold
    its oldest architecture that the toolkit compiles for, since later GPUs of the generation
    run code for that architecture. PTX of the newest of these architectures serves later
    generations.
    """
    numbers = sorted(map(int, compilable), reverse=True)
    oldest = {number // 10: number for number in numbers if number // 10 >= OLDEST_GENERATION}
    if version[0] < OLDEST_CUDA or not oldest:
        listed = ", ".join(map(str, reversed(numbers))) or "no GPU"
        raise BuildError(
            f"CUDA {dotted(version)} compiles for {listed}; kernels need CUDA {OLDEST_CUDA} or "
            f"newer, and an architecture of {OLDEST_GENERATION}.0 or newer. "
            "Set CUDA_HOME to a newer toolkit, "
            "or TORCH_CUDA_ARCH_LIST to an architecture of this one, like 8.0+PTX"
        )
    capabilities = [f"{number // 10}.{number % 10}" for number in sorted(oldest.values())]
    return ";".join(capabilities) + "+PTX"


def parse_architectures(listed: str, compilable: Collection[str]) -> list[str]:
    """Parses a TORCH_CUDA_ARCH_LIST: `8.0;9.0a+PTX` -> `["sm_80", "sm_90a", "compute_90a"]`.

    `compilable` are the architectures that the compiler accepts, as `80`.
    """
    result: list[str] = []
    for entry in re.split(r"[;,\s]+", listed.strip()):
        expanded = GENERATIONS.get(entry.lower().removesuffix("+ptx"), entry)
        for item in expanded.split(";"):
            match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", item, re.IGNORECASE)
            number = f"{match[1]}{match[2]}" if match else ""
            # nvcc lists 90 and 100, and accepts 90a (this GPU alone) and 100f (its family),
            # too.
            if match is None or number not in compilable:
                numbers = ", ".join(sorted(compilable, key=int))
                raise BuildError(
                    f"TORCH_CUDA_ARCH_LIST: {entry!r} is not a CUDA architecture that this "
                    f"compiler compiles (it compiles {numbers}); write for example 8.0;9.0+PTX"
                )
            number += match[3].lower()
            result += [f"sm_{number}", *([f"compute_{number}"] if match[4] else [])]
    return list(dict.fromkeys(result))
