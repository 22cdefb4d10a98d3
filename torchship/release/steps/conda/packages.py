"""The conda steps of a run: base channel, package, index, installation into a new prefix."""

import json
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from ... import ReleaseError
from ...matrix.cells import Cell, all_cells, for_conda, render, select
from ...matrix.settings import PLATFORM_VARIABLE, Settings
from ...paths import fresh, write_atomically
from ...root import IMPORT_PATH, PROJECT_VARIABLE
from ...run.shell import Log, clean_env
from ...run.store import commit, source_env
from ...run.tasks import Context, SkipTask, Task
from ..compile.environments import pip
from ..pack.distributions import gather, prebuilt_variable
from ..verify.runs import run_installed
from . import commands as conda_commands
from .stubs import link_torch

CONDA_FORGE = "https://conda.anaconda.org/conda-forge"
# Only one task at a time may index, since indexing reads and writes the whole channel.
_INDEX = threading.Lock()


def conda_forge_in_reach() -> bool:
    request = urllib.request.Request(f"{CONDA_FORGE}/noarch/repodata.json.zst", method="HEAD")
    with suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def worker_env(settings: Settings, **extra: str) -> dict[str, str]:
    """The environment of a conda worker, which makes the same settings from it."""
    run_of = {PROJECT_VARIABLE: str(settings.repo), PLATFORM_VARIABLE: settings.platform}
    return clean_env(settings.project, PYTHONPATH=str(IMPORT_PATH), **run_of, **extra)


def run_worker(
    log: Log, command: Sequence[str], variables: Mapping[str, str] | None = None
) -> None:
    """Runs a command line of `conda_commands`, with these environment variables."""
    cache = str(log.settings.cache / "rattler")
    env = worker_env(log.settings, RATTLER_CACHE_DIR=cache, **(variables or {}))
    log.run(command, env=env)


@dataclass(frozen=True, eq=False, kw_only=True)
class DownloadWheels(Task):
    """Downloads the wheels of the bootstrap channel with their requirements.

    The output is their folder. `release` is torch's; it is None in a run for another
    platform, which links an installed torch. The interpreter and its version are those of
    the host.
    """

    release: str | None
    python: str
    python_minor: str

    def run(self, context: Context) -> Sequence[Path]:
        folder = fresh(context.settings.build / "wheelhouse")
        # pip takes wheels for the tool's Python; in a run for another platform, all are pure
        # Python. The setuptools is the tool's own, because packages tell its version.
        requirements = [f"setuptools=={version('setuptools')}", "pip"]
        if self.release:
            requirements += [f"torch=={self.release}", "ninja", "numpy"]
        requirements += context.settings.matrix.build.pip_requirements
        options = ["--quiet", "--only-binary", ":all:", "--dest", str(folder)]
        pip(context.log, ["download", *options, *requirements])
        return [folder]


@dataclass(frozen=True, eq=False, kw_only=True)
class MakeBootstrapChannel(Task):
    """Makes a base channel of wheels and of the interpreter `python`.

    The outputs are packages.
    """

    wheels: Task
    python: str

    def run(self, context: Context) -> Sequence[Path]:
        channel = fresh(context.settings.bootstrap_channel)
        wheels = context.output(self.wheels)
        command = conda_commands.bootstrap(channel, wheels=wheels, python=self.python)
        run_worker(context.log, command)
        return sorted(channel.glob("*/*.conda"))


@dataclass(frozen=True, eq=False, kw_only=True)
class BuildPackage(Task):
    """Builds a conda package with the cell's binaries, and indexes it in `dist/channel`.

    `variants` is the text of a variants file for this cell alone, `channel` the base channel.
    """

    cell: Cell
    binaries: tuple[Task, ...]
    channel: str
    variants: str

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        work = settings.temporary / "conda" / self.cell.name
        out = fresh(work / "out")
        variants = work / "variants.yaml"
        write_atomically(variants, self.variants)
        prebuilt = gather(context.outputs(self.binaries), work / "prebuilt")
        run_worker(
            context.log,
            conda_commands.build(variants, out, channels=[self.channel]),
            {prebuilt_variable(settings): str(prebuilt), **source_env(settings)},
        )
        (package,) = out.glob(f"{settings.subdir}/*.conda")
        index_package(context.log, package, settings.channel)
        shutil.rmtree(out)
        return [settings.channel / settings.subdir / package.name]


def check_package(log: Log, package: Path, binaries: Sequence[Path], *, wheel: Path) -> None:
    """Raises ReleaseError if a package holds other binaries or files than the wheel of its cell,
    or a path of its build."""
    run_worker(log, conda_commands.contents(package, binaries, wheel))


def index_package(log: Log, package: Path, channel: Path) -> None:
    with _INDEX:
        run_worker(log, conda_commands.index(channel, [package]))


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkTorch(Task):
    """Makes a channel in `folder` whose pytorch links to the torch of an environment.

    `env_folder` is where that environment lies, which the packages name.
    """

    env: Task
    env_folder: str
    folder: Path
    python_minor: str

    def run(self, context: Context) -> Sequence[Path]:
        subdir = context.settings.subdir
        link_torch(fresh(self.folder), context.output(self.env), self.python_minor, subdir=subdir)
        for path in sorted(self.folder.glob(f"{subdir}/*.tar.bz2")):
            context.log.write(path.name)
        return [self.folder]


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportNoTorch(Task):
    """Stands for the environment of a torch that PyPI does not have; it is always skipped."""

    cuda_major: int
    python_minor: str

    def run(self, context: Context) -> Sequence[Path]:
        raise SkipTask(
            f"PyPI has no torch with CUDA {self.cuda_major} that the stable glue serves on Python "
            f"{self.python_minor}; set PYTHON to another Python, or --channel to a channel with a "
            "pytorch"
        )


def build_recipe(selector: str, channel: str | None, console: Console, settings: Settings) -> None:
    """Builds and tests packages from source by `conda build`, or without it by py-rattler-build."""
    base = channel or settings.bootstrap_channel.as_uri()
    conda = _conda_with_build()
    env = worker_env(settings)
    env[settings.project.variable("GIT_COMMIT")] = commit(settings)
    packaged = [cell for cell in all_cells(settings.matrix) if for_conda(cell)]
    for cell in select(packaged, [selector]):
        out = fresh(settings.build / "recipe" / cell.name)
        variants = out / "variants.yaml"
        write_atomically(variants, render([cell], settings.matrix))
        command = conda_commands.build(variants, out, channels=[base], run_tests=True)
        if conda:
            command = [conda, "build", "recipe", "-m", str(variants), "-c", base]
            command += ["--override-channels", "--output-folder", str(out)]
        console.print(cell.name, *command, markup=False, soft_wrap=True)
        if subprocess.run(command, cwd=settings.repo, env=env | driver(cell)).returncode:
            raise ReleaseError(f"{cell.name}: not built beside {base}; the lines above say why")


def _conda_with_build() -> str | None:
    """The path of a conda that has conda-build; None if there is none."""
    conda = shutil.which("conda")
    if conda is None:
        return None
    process = subprocess.run([conda, "build", "--version"], capture_output=True)
    return None if process.returncode else conda


@dataclass(frozen=True, eq=False, kw_only=True)
class TestPackage(Task):
    """Checks the content of the package, and runs the tests that the package holds.

    A package for another platform only has its content checked, as its tests cannot run here.
    """

    __test__ = False  # pytest takes a class of this name for tests

    cell: Cell
    package: Task
    binaries: tuple[Task, ...]
    channels: tuple[str, ...]

    def run(self, context: Context) -> Sequence[Path]:
        package = context.output(self.package)
        binaries = context.outputs(self.binaries)
        run_worker(context.log, conda_commands.contents(package, binaries))
        if not context.settings.is_foreign:
            channels = [context.settings.channel.as_uri(), *self.channels]
            command = conda_commands.test(package, channels=channels)
            run_worker(context.log, command, driver(self.cell))
        return []


def driver(cell: Cell) -> dict[str, str]:
    """The variable that tells the solver which driver to assume; none if the solver detects it.

    A CPU package is tried beside a CPU pytorch, without a driver. For a CUDA package, the
    solver assumes a driver where there is none; the package then computes on the CPU.
    """
    if cell.cuda_major is None:
        return {"CONDA_OVERRIDE_CUDA": ""}
    if Path("/proc/driver/nvidia/version").exists():
        return {}
    return {"CONDA_OVERRIDE_CUDA": f"{cell.cuda_major}.0"}


@dataclass(frozen=True, eq=False, kw_only=True)
class InstallPackage(Task):
    """Installs the package into a new conda prefix and runs the package there.

    The last output is the smoke test's report, with the name of the `pytorch` package.
    """

    cell: Cell
    package: Task
    channels: tuple[str, ...]
    python_minor: str

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        folder = settings.envs / f"{self.cell.name}-conda"
        self._install(context, folder)
        gpu = self.cell.cuda_major is not None
        # Under qemu the checker is slow; the run of the wheel has tested it, so this run
        # leaves it out.
        report = run_installed(
            context.log, folder, self.cell.glue, gpu=gpu, checker=not settings.is_foreign
        )
        (pytorch,) = (path.stem for path in folder.glob("conda-meta/pytorch-*.json"))
        facts = json.loads(report.read_text(encoding="utf-8"))
        write_atomically(report, json.dumps({**facts, "pytorch": pytorch}, indent=1))
        # Deletes a prefix that links a torch, which the tool will delete, or whose CUDA
        # lacks a driver.
        if "linked" in pytorch or (gpu and driver(self.cell)):
            shutil.rmtree(folder)
            return [report]
        return [folder, report]

    def _install(self, context: Context, folder: Path) -> None:
        settings = context.settings
        package = context.output(self.package)
        _, version, build = package.name.removesuffix(".conda").rsplit("-", 2)
        specs = [
            f"{settings.project.distribution} =={version} {build}",
            f"python {self.python_minor}.*",
        ]
        channels = [settings.channel.as_uri(), *self.channels]
        command = conda_commands.install(folder, specs, channels=channels)
        run_worker(context.log, command, driver(self.cell))
