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
from ...matrix.schema import Tool, pair
from ...matrix.settings import PLATFORM_VARIABLE, Settings
from ...paths import fresh, write_atomically
from ...plan.plan import Plan
from ...root import IMPORT_PATH, PROJECT_VARIABLE
from ...run.shell import Log, clean_env
from ...run.store import commit, source_env
from ...run.tasks import CheckTask, Context, FileTask, SkipTask, Task, Tasks
from ..compile import emulation
from ..compile.audit import Audit
from ..compile.downloads import pip
from ..compile.environments import MakeTorchEnv, TorchEnv, own_cache
from ..compile.objects import objects_of
from ..pack.distributions import gather, prebuilt_variable
from ..step import CellStep, File, Part
from ..verify.runs import RunStep, run_installed
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
    """Runs a command line of `commands.py`, with these environment variables."""
    cache = str(log.settings.cache / "rattler")
    env = worker_env(log.settings, RATTLER_CACHE_DIR=cache, **(variables or {}))
    log.run(command, env=env)


@dataclass(frozen=True, eq=False, kw_only=True)
class DownloadWheels(FileTask):
    """Downloads the wheels of the bootstrap channel with their requirements.

    The output is their folder. The interpreter and its version are those of the host.
    """

    python: str
    python_minor: str

    @classmethod
    def plan(cls, subject: Cell | Tool, plan: Plan) -> "DownloadWheels":
        step = cls(
            name="wheelhouse",
            python=plan.host.python,
            python_minor=plan.host.python_minor,
        )
        return plan.add(step, subject)

    def run(self, context: Context) -> Sequence[Path]:
        folder = fresh(context.settings.build / "wheelhouse")
        # pip takes wheels for the tool's Python; in a run for another platform, all are pure
        # Python. The setuptools is the tool's own, because packages tell its version.
        requirements = [f"setuptools=={version('setuptools')}", "pip"]
        if not context.settings.is_foreign:
            requirements.append("ninja")
        requirements += context.settings.matrix.build.pip_requirements
        options = ["--quiet", "--only-binary", ":all:", "--dest", str(folder)]
        pip(context.log, ["download", *options, *requirements])
        return [folder]


@dataclass(frozen=True, eq=False, kw_only=True)
class MakeBootstrapChannel(CheckTask):
    """Makes a base channel of wheels and of the interpreter `python`.

    Its pytorch links to the environment that `torch` makes. Steps that come after it read the
    channel by its address.
    """

    wheels: Task[Path]
    torch: Task[Path] | None
    python: str

    @classmethod
    def plan(cls, subject: Cell | Tool, plan: Plan) -> "MakeBootstrapChannel":
        plain = next(filter(is_plain, all_cells(plan.settings.matrix)), None)
        torch = None
        if plain and not plan.settings.is_foreign:
            env = TorchEnv.of(plain, plan)
            torch = plan.add(MakeTorchEnv(name=f"env/{env.name}", env=env), subject)
        step = cls(
            name="bootstrap-channel",
            wheels=DownloadWheels.plan(subject, plan),
            torch=torch,
            python=plan.host.python,
            after=emulation.tasks(subject, plan),
        )
        return plan.add(step, subject)

    @property
    def reads(self) -> Tasks:
        return (self.wheels, *([self.torch] if self.torch else []))

    def run(self, context: Context) -> Sequence[Path]:
        channel = fresh(context.settings.bootstrap_channel)
        wheels = context.output(self.wheels)
        torch = context.output(self.torch) if self.torch else None
        command = conda_commands.bootstrap(channel, wheels=wheels, python=self.python, torch=torch)
        run_worker(context.log, command)
        return sorted(channel.glob("*/*.conda"))


@dataclass(frozen=True)
class BaseChannel:
    """The channel that a package is built or installed beside, and the tasks that make it."""

    urls: tuple[str, ...]
    tasks: Tasks = ()

    @classmethod
    def plan(cls, subject: Cell | Tool, plan: Plan) -> "BaseChannel":
        """The base channel of a run; all cells and tools share a bootstrap channel."""
        if plan.channel:
            return cls(urls=(plan.channel,))
        channel = MakeBootstrapChannel.plan(subject, plan)
        return cls(urls=(plan.settings.bootstrap_channel.as_uri(),), tasks=(channel,))

    @classmethod
    def with_torch(cls, cell: Cell, plan: Plan) -> "BaseChannel":
        """The base channel with a pytorch for the cell's package.

        The bootstrap channel of this machine's platform has a pytorch for stable glue on the CPU.
        The others get a channel of their own, whose pytorch links to another torch.
        """
        base = cls.plan(cell, plan)
        has_torch = is_plain(cell) and not plan.settings.is_foreign
        if not base.tasks or has_torch or not is_installed(cell, plan):
            return base
        linked = LinkTorch.plan(cell, plan)
        return cls(
            urls=(linked.folder.as_uri(), *base.urls), tasks=(linked, linked.torch_env, *base.tasks)
        )


def is_plain(cell: Cell) -> bool:
    """Whether a cell is the stable one for the CPU."""
    return cell.stable and cell.cuda_major is None


def is_installed(cell: Cell, plan: Plan) -> bool:
    """Whether the cell's package is installed and run: under qemu, only the plain one is."""
    return is_plain(cell) or not plan.settings.is_foreign


@dataclass(frozen=True, eq=False, kw_only=True)
class BuildPackage(CellStep[Path], FileTask):
    """Builds a conda package with the cell's binaries, and indexes it in `dist/channel`.

    `variants` is the text of a variants file for this cell alone, `channel` the base channel.
    """

    kind = "conda"
    cell: Cell
    binaries: tuple[Task[Path], ...]
    channel: str
    variants: str

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "BuildPackage | None":
        if not for_conda(cell):
            plan.leave_out(
                cls.kind,
                cell,
                f"conda-forge's pytorch {cell.torch_minor} and this glue have different C++ ABIs",
            )
            return None
        base = BaseChannel.plan(cell, plan)
        (url,) = base.urls
        step = cls(
            name=f"{cls.kind}/{cell}",
            cell=cell,
            binaries=objects_of(cell, plan),
            channel=url,
            variants=render([cell], plan.settings.matrix),
            after=(*base.tasks, Audit.plan(cell, plan)),
            inputs=(*plan.inputs.recipe, *plan.inputs.package),
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return self.binaries

    def part(self, made: Path, settings: Settings) -> Part:
        file = File(made, "conda", ("anaconda", "folder"), (self.cell.name,))
        return Part(files=(file,))

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
class LinkTorch(FileTask):
    """Makes a channel in `folder` whose pytorch links to the torch of an environment.

    `env_folder` is where that environment lies, which the packages name.
    """

    torch_env: Task[Path]
    env_folder: str
    folder: Path
    python_minor: str

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "LinkTorch":
        """The channel with a pytorch for the cell's package.

        The torch that stable glue is compiled against may have another CUDA than the
        kernels, or none. So a stable CUDA package gets the newest torch of its major that
        the glue serves, fetched once the package is made. If no such torch fits this
        Python, the task is skipped.
        """
        torch: Task[Path]
        if cell.stable and cell.cuda_major is not None:
            env = env_of_cuda(cell.cuda_major, plan)
            if env.release:
                package = BuildPackage.plan(cell, plan)
                after = () if package is None else (package,)
                torch = MakeTorchEnv.plan(cell, plan, env=env, after=after)
            else:
                torch = ReportNoTorch.plan(cell, plan, env)
        else:
            env = TorchEnv.of(cell, plan)
            torch = MakeTorchEnv.plan(cell, plan)
        step = cls(
            name=f"linked/{env.name}",
            torch_env=torch,
            env_folder=str(env.folder),
            folder=plan.settings.linked_channels / env.name,
            python_minor=plan.host.python_minor,
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.torch_env,)

    def run(self, context: Context) -> Sequence[Path]:
        subdir = context.settings.subdir
        link_torch(
            fresh(self.folder), context.output(self.torch_env), self.python_minor, subdir=subdir
        )
        for path in sorted(self.folder.glob(f"{subdir}/*.tar.bz2")):
            context.log.write(path.name)
        return [self.folder]


def env_of_cuda(cuda_major: int, plan: Plan) -> TorchEnv:
    """The environment with the newest torch of a CUDA major that the stable glue serves.

    Its release is "" if there is no such torch for this Python.
    """
    matrix = plan.settings.matrix
    python = plan.host.python_minor
    served = [
        torch.release
        for torch in matrix.torch.values()
        if torch.cuda_major == cuda_major
        and python in torch.pythons
        and pair(torch.release) >= pair(matrix.stable.target)
    ]
    release = max(served, key=pair, default="")
    name = f"{f'torch-{release}' if release else 'none'}-cu{cuda_major}-py{python}"
    return TorchEnv(
        folder=plan.settings.envs / name,
        python=plan.host.python,
        release=release,
        cache=own_cache(name, plan.settings),
        find_links=False,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportNoTorch(FileTask):
    """Stands for the environment of a torch that PyPI does not have; it is always skipped."""

    cuda_major: int
    python_minor: str

    @classmethod
    def plan(cls, cell: Cell, plan: Plan, env: TorchEnv) -> "ReportNoTorch":
        step = cls(
            name=f"env/{env.name}",
            cuda_major=cell.cuda_major or 0,
            python_minor=plan.host.python_minor,
        )
        return plan.add(step, cell)

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
class TestPackage(CellStep[None], CheckTask):
    """Checks the content of the package, and runs the tests that the package holds.

    A package for another platform only has its content checked, as its tests cannot run here.
    """

    __test__ = False  # pytest takes a class of this name for tests

    kind = "conda-test"
    cell: Cell
    package: Task[Path]
    binaries: tuple[Task[Path], ...]
    channels: tuple[str, ...]

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "TestPackage | None":
        package = BuildPackage.plan(cell, plan)
        if package is None:
            return None
        base = BaseChannel.with_torch(cell, plan)
        step = cls(
            name=f"{cls.kind}/{cell}",
            cell=cell,
            package=package,
            binaries=package.binaries,
            channels=base.urls,
            after=base.tasks,
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.package, *self.binaries)

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
class InstallPackage(RunStep[Path]):
    """Installs the package into a new conda prefix and runs the package there.

    The output is the smoke test's report, with the name of the `pytorch` package.
    """

    kind = "prefix"
    run_kind = "conda"
    cell: Cell
    package: Task[Path]
    channels: tuple[str, ...]
    python_minor: str

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "InstallPackage | None":
        package = BuildPackage.plan(cell, plan)
        if package is None:
            return None
        if not is_installed(cell, plan):
            plan.leave_out(cls.kind, cell, emulation.SLOW)
            return None
        base = BaseChannel.with_torch(cell, plan)
        step = cls(
            name=f"{cls.kind}/{cell}",
            cell=cell,
            package=package,
            channels=base.urls,
            python_minor=plan.host.python_minor,
            after=base.tasks,
            inputs=(plan.settings.smoke,),
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.package,)

    def made(self, paths: Sequence[Path]) -> Path:
        return paths[-1]

    def part(self, made: Path, settings: Settings) -> Part:
        return self.part_of_report(made, settings)

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        folder = settings.envs / f"{self.cell.name}-conda"
        self._install(context, folder)
        gpu = self.cell.cuda_major is not None
        # The package's own test runs the checker; under qemu, where that test does not run, the
        # run of the wheel does.
        report = run_installed(context.log, folder, self.cell.glue, gpu=gpu, checker=False)
        (pytorch,) = (path.stem for path in folder.glob("conda-meta/pytorch-*.json"))
        facts = json.loads(report.read_text(encoding="utf-8"))
        write_atomically(report, json.dumps({**facts, "pytorch": pytorch}, indent=1))
        # Deletes a prefix that links a torch, which the tool will delete, or whose CUDA
        # lacks a driver.
        if not is_plain(self.cell) and ("linked" in pytorch or (gpu and driver(self.cell))):
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
