"""The settings of a run: who the project is, which platform the run is for, where its files lie.

`__main__` makes the settings once for each platform and hands them down.
"""

import platform
import re
import runpy
from dataclasses import dataclass
from pathlib import Path

from ...builder.client import package_folder
from ...judge.project import Project
from .. import ReleaseError
from ..root import MATRIX_NAME
from .schema import Matrix, machine_of, subdir_of

WRITE_COMMAND = "scripts/build_all.sh generate"
ORIGIN = f"Generated from {MATRIX_NAME} by `{WRITE_COMMAND}`; do not edit."


# The program that tries an installed package, unless the project names another.
SMOKE_PROGRAM = Path(__file__).resolve().parents[1] / "launch" / "engine_smoke.py"
# Names the platform of a run that selectors do not decide; without it, this machine's is
# meant.
PLATFORM_VARIABLE = "RELEASE_PLATFORM"


def native_platform() -> str:
    """The platform of this machine, such as `linux-x86_64`."""
    return f"linux-{platform.machine()}"


@dataclass(frozen=True)
class Settings:
    """The facts about the project and the folders that every step of a run may need.

    `matrix` holds the values of the run's platform. All files in `build` may be deleted
    between runs. Files for a platform other than this machine's have their own folders.
    """

    repo: Path
    matrix: Matrix
    project: Project
    native: str
    build: Path
    dist: Path

    @property
    def platform(self) -> str:
        """The platform of this run."""
        return self.matrix.platform

    @property
    def machine(self) -> str:
        """The processor of the run's platform, such as `aarch64`."""
        return machine_of(self.platform)

    @property
    def is_foreign(self) -> bool:
        """Whether the run is for another platform than this machine's."""
        return self.platform != self.native

    @property
    def subdir(self) -> str:
        """Conda's name of the run's platform."""
        return subdir_of(self.platform)

    @property
    def native_subdir(self) -> str:
        """Conda's name of this machine's platform."""
        return subdir_of(self.native)

    # Files of the project.

    @property
    def package(self) -> Path:
        return self.project.folder

    @property
    def smoke(self) -> Path:
        """The program that tries an installed package."""
        own = self.matrix.project.smoke
        return SMOKE_PROGRAM if own is None else self.repo / own

    @property
    def example(self) -> Path | None:
        """The program that runs beside every thin wheel; None if the project has none."""
        own = self.matrix.project.example
        return None if own is None else self.repo / own

    @property
    def variants(self) -> Path:
        return self.repo / "recipe" / "variants.yaml"

    # Folders and files below `build`.

    @property
    def logs(self) -> Path:
        return self.build / "logs"

    @property
    def cache(self) -> Path:
        return self.build / "cache"

    @property
    def envs(self) -> Path:
        return self.build / "envs"

    @property
    def binaries(self) -> Path:
        return self.build / "binaries"

    @property
    def native_binaries(self) -> Path:
        """The binaries for this machine's own platform."""
        return self.repo / "build" / "binaries"

    @property
    def bootstrap_channel(self) -> Path:
        return self.build / "bootstrap-channel"

    @property
    def linked_channels(self) -> Path:
        return self.build / "linked-channels"

    @property
    def temporary(self) -> Path:
        return self.build / "tmp"

    @property
    def toolkits(self) -> Path:
        return self.build / "toolkits"

    @property
    def verify_full(self) -> Path:
        return self.build / "verify-full"

    # Folders and files below `dist`.

    @property
    def channel(self) -> Path:
        """The conda packages that this run makes, indexed."""
        return self.dist / "channel"

    @property
    def index(self) -> Path:
        """An index for pip, with a folder for each distribution."""
        return self.dist / "simple"

    @property
    def thin_wheels(self) -> Path:
        """The thin wheels, which lie in the index in the folder of the project's distribution."""
        return self.index / self.project.distribution

    @property
    def cell_logs(self) -> Path:
        return self.dist / "logs"

    @property
    def manifest(self) -> Path:
        return self.dist / "manifest.json"


def make_settings(matrix: Matrix, repo: Path) -> Settings:
    """The settings of a run for the platform of `matrix`, in the project's folder `repo`."""
    native = native_platform()
    folder = "" if matrix.platform == native else matrix.platform
    return Settings(
        repo=repo,
        matrix=matrix,
        project=make_project(matrix, repo),
        native=native,
        build=repo / "build" / folder,
        dist=repo / "dist" / folder,
    )


def make_project(matrix: Matrix, repo: Path) -> Project:
    """The engine's record of the project, from the block `project:` of the matrix.

    The project's package holds the same record in `_project.py`, which is generated; the tool
    imports nothing of the package.
    """
    names = matrix.project
    folder = package_folder(repo, names.package)
    return Project(
        distribution=names.distribution,
        package=names.package,
        namespace=names.namespace,
        prefix=names.prefix,
        operator=names.operator,
        version=read_version(folder / "_version.py"),
        folder=folder,
        kernels=device_types(matrix),
        has_cuda_glue=has_cuda_glue(matrix),
        has_cpu_glue=has_cpu_glue(matrix),
        is_stable=bool(matrix.stable.devices),
        definition=f"{names.package}.{names.definition}" if names.definition else "",
    )


def device_types(matrix: Matrix) -> tuple[str, ...]:
    """The types of device that have kernels: `cpu`, `cuda`, both or neither."""
    names = (name for name, kernels in matrix.kernels.items() if kernels.has_object)
    return tuple(dict.fromkeys(re.sub(r"\d+$", "", name) for name in names))


def has_cuda_glue(matrix: Matrix) -> bool:
    """Whether the glue itself has code for CUDA."""
    return any(kernels.is_in_glue for kernels in matrix.kernels.values())


def has_cpu_glue(matrix: Matrix) -> bool:
    """Whether there is a glue for the CPU, or one without CUDA code, which serves every device."""
    lists = [matrix.stable.devices, *(torch.aten for torch in matrix.torch.values())]
    return any("cpu" in devices for devices in lists) or not has_cuda_glue(matrix)


def read_version(path: Path) -> str:
    """The value of `__version__` in the file at `path`."""
    try:
        return str(runpy.run_path(str(path))["__version__"])
    except (OSError, KeyError, SyntaxError) as error:
        raise ReleaseError(
            f"{path}: got no version ({type(error).__name__}: {error}), needs a line "
            f'`__version__ = "1.2.3"`; restore the file'
        ) from error
