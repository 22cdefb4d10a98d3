"""Plans the tasks of cells; a task that several cells need is planned once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..builder.sources import build_inputs
from .audit import Audit
from .build_steps import CompileGlue, CompileKernels, origin_of_objects
from .cells import Cell, for_conda, render, required
from .conda_steps import (
    BuildPackage,
    DownloadWheels,
    InstallPackage,
    LinkTorch,
    MakeBootstrapChannel,
    ReportNoTorch,
    TestPackage,
)
from .emulation import UnpackPython
from .environments import FetchHeaders, MakeTorchEnv, TorchEnv
from .host import Host, borrowed_torch, toolchain
from .pack_steps import JoinWheels, PackedCell, PackSdist, PackWheel, package_sources
from .schema import Tool, pair
from .settings import Settings
from .store import TORCHSHIP, source_epoch, sources
from .tasks import Task
from .tool_steps import (
    AuditTool,
    BuildNoarch,
    InstallNoarch,
    InstallTool,
    LinkExtras,
    PackTool,
    PackZipapp,
    RunZipapp,
    own_versions,
)
from .toolchains import ADAPTER, InstallRuntime, MakeToolkit, Toolchain
from .tools import CARRIED
from .verify_steps import InstallWheel, RunExample, RunFatWheel, venv_of

# The bytes of an unpacked torch, which uv's cache and an environment share by hard links.
# ROOM is for two torches with CUDA, so that the tool can fetch one while it uses the other.
CUDA_TORCH = 7_500_000_000
CPU_TORCH = 1_200_000_000
ROOM = 2 * CUDA_TORCH

AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass
class CellTasks:
    """The tasks of one cell; None where the plan has no such task for it."""

    binaries: tuple[Task, ...] = ()
    audit: Task | None = None
    wheel: Task | None = None
    venv: Task | None = None
    example: Task | None = None
    package: Task | None = None
    prefix: Task | None = None
    fat_run: Task | None = None

    @property
    def wheel_runs(self) -> tuple[Task, ...]:
        return tuple(task for task in (self.venv, self.example) if task)


@dataclass(frozen=True)
class BaseChannel:
    """The channel that a package is built or installed beside, and the tasks that make it."""

    urls: tuple[str, ...]
    tasks: tuple[Task, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """The files of the checkout that steps read."""

    csrc: tuple[Path, ...]
    recipe: tuple[Path, ...]
    examples: tuple[Path, ...]
    smoke: tuple[Path, ...]
    package: tuple[Path, ...]


def find_inputs(settings: Settings, *, pack: bool) -> Inputs:
    """The files of the steps; without `pack`, no step reads those of the package."""
    repo = settings.repo
    recipe = sources(repo, "recipe/*")
    example = settings.example
    examples = () if example is None else sources(repo, _example_files(example.relative_to(repo)))
    return Inputs(
        csrc=(
            *sources(repo, "csrc/**/*"),
            *sources(TORCHSHIP, "include/**/*"),
            *build_inputs(settings.project, repo / "csrc"),
        ),
        recipe=tuple(path for path in recipe if not path.stem.startswith("variants")),
        examples=examples,
        smoke=(settings.smoke,),
        package=package_sources(repo) if pack else (),
    )


def _example_files(example: Path) -> str:
    """A pattern of the example and the files that it may read, which begin with its name."""
    return f"{example.parent}/{example.stem}*.py"


@dataclass
class Plan:
    """All tasks of a run, in an order in which they can run.

    Without a `channel`, they make a bootstrap channel. `carried` are thin wheels of other
    cells, which an earlier run made from the same sources. Without `pack`, nothing is
    packed or run. `tools` are packed beside the cells.
    """

    settings: Settings
    host: Host
    cells: Sequence[Cell] = ()
    channel: str | None = None
    carried: Mapping[str, Path] = field(default_factory=dict)
    pack: bool = True
    tools: Sequence[Tool] = ()

    def __post_init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.of: dict[str, CellTasks] = {}
        self.inputs = find_inputs(self.settings, pack=self.pack)
        self.epoch = source_epoch(self.settings)
        self.origin = origin_of_objects(self.host.compiler, self.settings)
        for cell in self.cells:
            self.add_cell(cell)
        if self.cells and self.pack:
            self.add_fat_wheel()
        for tool in self.tools if self.pack else ():
            self.add_tool(tool)

    def add(self, task: AnyTask, cell: Cell | Tool | None = None) -> AnyTask:
        """Adds a task, or finds the one of its name; notes that the task serves the cell, or the
        tool.
        """
        planned = self.tasks.setdefault(task.name, task)
        if not isinstance(planned, type(task)):
            raise TypeError(f"{task.name}: got {type(task)}, the plan has {type(planned)}")
        if cell and cell.name not in planned.cells:
            planned.cells.append(cell.name)
        return planned

    def add_cell(self, cell: Cell) -> None:
        env = self._env_of(cell)
        own = self.of[cell.name] = CellTasks()
        own.binaries = (self._glue(cell, env), *self._kernels_of(cell))
        own.audit = self._audit(cell, env)
        if not self.pack:
            return
        own.wheel = self._wheel(cell, own.audit)
        own.venv = self._venv(cell, own.wheel, env)
        example = self.settings.example
        if example is not None and self._runs_example(cell):
            own.example = self._example(cell, own.venv, example)
        if for_conda(cell):
            self._add_conda(cell, own.audit, env)

    # Environments with torch.

    def _env_of(self, cell: Cell) -> TorchEnv:
        """The environment with the torch that the cell's glue is compiled against."""
        release = cell.torch.release
        borrowed = borrowed_torch(cell, self.host)
        if borrowed:
            name = f"torch-{borrowed.version}-abi{borrowed.cxx11_abi}"
            return TorchEnv(
                folder=self.settings.envs / name,
                python=self.host.python,
                release=release,
                borrowed=borrowed.root,
            )
        name = f"torch-{release}-py{self.host.python_minor}"
        return TorchEnv(
            folder=self.settings.envs / name,
            python=self.host.python,
            release=release,
            cache=None if cell.stable else self._own_cache(name),
        )

    def _headers(self, cell: Cell) -> Task | None:
        """Fetches the torch whose headers replace those of the cell's torch; None without one."""
        if cell.headers is None:
            return None
        task = FetchHeaders(
            name=f"headers/torch-{cell.headers.release}",
            release=cell.headers.release,
            python_minor=cell.headers.pythons[0],
            machine=self.settings.machine,
        )
        return self.add(task, cell)

    def _own_cache(self, env_name: str) -> Path:
        return self.settings.cache / f"uv-{env_name}"

    def _torch_env(self, cell: Cell, env: TorchEnv, after: tuple[Task, ...] = ()) -> Task:
        """Makes an environment; an environment with its own cache is temporary."""
        temporary: tuple[Path, ...] = ()
        disk = 0
        if env.cache:
            temporary = (env.folder, env.cache)
            disk = CUDA_TORCH if cell.torch.cuda else CPU_TORCH
        task = MakeTorchEnv(
            name=f"env/{env.name}",
            env=env,
            after=(*after, *self._emulated(cell)),
            temporary=temporary,
            disk=disk,
        )
        return self.add(task, cell)

    def _emulated(self, cell: Cell) -> tuple[Task, ...]:
        """The task that makes the Python of another platform.

        () for this machine's platform.
        """
        if not self.settings.is_foreign:
            return ()
        task = UnpackPython(
            name="root",
            debian=self.settings.matrix.platforms[cell.platform].debian,
            minor=self.host.python_minor,
        )
        return (self.add(task, cell),)

    # Binaries.

    def _glue(self, cell: Cell, env: TorchEnv) -> Task:
        has_cuda = cell.glue_object != cell.glue
        kernels = str(cell.variant.kernels)
        task = CompileGlue(
            name=f"glue/{cell.glue_object}",
            glue=cell.glue_object,
            cxx11_abi=cell.cxx11_abi,
            env=self._headers(cell) or self._torch_env(cell, env),
            kernels=self.settings.matrix.kernels[kernels] if has_cuda else None,
            toolchain=self._toolchain(kernels) if has_cuda else None,
            toolkit=self._toolkit(kernels, cell) if has_cuda else None,
            origin=self.origin,
            inputs=self.inputs.csrc,
        )
        return self.add(task, cell)

    def _kernels_of(self, cell: Cell) -> list[Task]:
        return [self._kernels(name, cell) for name in cell.kernels]

    def _kernels(self, name: str, cell: Cell) -> Task:
        task = CompileKernels(
            name=f"kernels/{name}",
            object_name=name,
            kernels=self.settings.matrix.kernels[name],
            toolchain=self._toolchain(name),
            toolkit=self._toolkit(name, cell),
            runtime=self._runtime(name, cell),
            origin=self.origin,
            inputs=self.inputs.csrc,
        )
        return self.add(task, cell)

    def _toolchain(self, kernels: str) -> Toolchain | None:
        choice = toolchain(kernels, self.host, self.settings.matrix)
        return choice if isinstance(choice, Toolchain) else None

    def _toolkit(self, kernels: str, cell: Cell) -> Task | None:
        """Makes the CUDA toolkit of kernels.

        None for CPU kernels and for an installed nvcc.
        """
        choice = self._toolchain(kernels)
        if choice is None or choice.nvcc:
            return None
        task = MakeToolkit(
            name=f"toolkit/{choice.name}",
            toolchain=choice,
            wheels=self.settings.matrix.toolkits[choice.version],
            inputs=(ADAPTER,),
        )
        return self.add(task, cell)

    def _runtime(self, kernels: str, cell: Cell) -> Task | None:
        """Installs CUDA's runtime for another platform; None in a native run."""
        choice = self._toolchain(kernels)
        if choice is None or not self.settings.is_foreign:
            return None
        task = InstallRuntime(
            name=f"toolkit/runtime-{choice.version}",
            version=choice.version,
            python=self.host.python,
            after=self._emulated(cell),
        )
        return self.add(task, cell)

    def _audit(self, cell: Cell, env: TorchEnv) -> Task:
        natives: tuple[Path, ...] = ()
        if self.settings.is_foreign and cell.cuda_major:
            cuda = f"kernels-{cell.variant.kernels}"
            natives = (self.settings.native_binaries / cuda / f"{cuda}.so",)
        task = Audit(
            name=f"audit/{cell}",
            cell=cell,
            env=self._torch_env(cell, env),
            binaries=self.of[cell.name].binaries,
            toolkit=self._toolkit(str(cell.variant.kernels), cell),
            manylinux=self.settings.matrix.package.manylinux,
            natives=natives,
            inputs=tuple(path for path in natives if path.exists()),
        )
        return self.add(task, cell)

    # Wheels.

    def _wheel(self, cell: Cell, audit: Task) -> Task:
        sdist = PackSdist(name="sdist", epoch=self.epoch, inputs=self.inputs.package)
        task = PackWheel(
            name=f"wheel/{cell}",
            cell=cell,
            sdist=self.add(sdist, cell),
            binaries=self.of[cell.name].binaries,
            after=(audit,),
        )
        return self.add(task, cell)

    def _venv(self, cell: Cell, wheel: Task, env: TorchEnv) -> Task:
        task = InstallWheel(
            name=f"venv/{cell}",
            cell=cell,
            wheel=wheel,
            env=env,
            torch_env=self._torch_env(cell, env),
            inputs=self.inputs.smoke,
            temporary=(venv_of(cell, self.settings),) if env.cache else (),
        )
        return self.add(task, cell)

    def _runs_example(self, cell: Cell) -> bool:
        """Whether the example runs for the cell.

        Without a GPU, a CUDA cell trains like its CPU twin, so it leaves the example to
        that twin; code for CUDA alone trains nothing.
        """
        if self.settings.is_foreign:
            return False
        if self.settings.project.is_for_cuda_alone:
            return self.host.driver
        has_twin = any(c.glue == cell.glue and c.cuda_major is None for c in self.cells)
        return cell.cuda_major is None or self.host.driver or not has_twin

    def _example(self, cell: Cell, venv: Task, example: Path) -> Task:
        task = RunExample(
            name=f"{example.stem}/{cell}",
            example=example,
            cell=cell,
            venv=venv,
            inputs=self.inputs.examples,
        )
        return self.add(task, cell)

    def add_fat_wheel(self) -> None:
        """Adds the task that makes the fat wheel, and its runs in environments that stay."""
        task = JoinWheels(
            name="fat-wheel",
            packed=tuple(
                PackedCell(name=name, wheel=own.wheel, runs=own.wheel_runs)
                for name, own in self.of.items()
                if own.wheel
            ),
            carried=self.carried,
            required=tuple(required(self.settings.matrix)),
            limit=self.settings.matrix.project.wheel_limit,
            inputs=tuple(self.carried.values()),
            anyway=True,
        )
        fat_wheel = self.add(task)
        for cell in self.cells:
            venv = self.of[cell.name].venv
            # The fat wheel does not run beside temporary torches; `--verify full` tries
            # them all. Under qemu a run is slow, and the thin wheels' runs test the fat
            # wheel's binaries.
            is_planned = f"fat-run/{cell.glue}" in self.tasks
            if venv and not (venv.temporary or self.settings.is_foreign or is_planned):
                self.of[cell.name].fat_run = self._fat_run(cell, venv, fat_wheel)

    def _fat_run(self, cell: Cell, venv: Task, fat_wheel: Task) -> Task:
        task = RunFatWheel(
            name=f"fat-run/{cell.glue}",
            glue=cell.glue,
            venv=venv,
            fat_wheel=fat_wheel,
            inputs=self.inputs.smoke,
        )
        return self.add(task, cell)

    # Conda packages.

    def _add_conda(self, cell: Cell, audit: Task, env: TorchEnv) -> None:
        """Adds the conda package, its tests, and its run in a prefix."""
        own = self.of[cell.name]
        base = self._base_channel(cell)
        own.package = self._package(cell, audit, base)
        is_plain = cell.stable and cell.cuda_major is None
        # The bootstrap channel of this machine's platform has a pytorch for stable glue on
        # the CPU. Otherwise, a pytorch package links to an installed torch. Under qemu,
        # only the stable CPU package is installed; the runs of the thin wheels test the
        # binaries of the other cells.
        is_installed = is_plain or not self.settings.is_foreign
        if base.tasks and is_installed and (self.settings.is_foreign or not is_plain):
            base = self._linked_channel(cell, env, own.package, base)
        self._package_tests(cell, own.package, base)
        if is_installed:
            own.prefix = self._prefix(cell, own.package, base)

    def _base_channel(self, cell: Cell | Tool) -> BaseChannel:
        """The base channel; all cells and tools share a bootstrap channel."""
        if self.channel:
            return BaseChannel(urls=(self.channel,))
        matrix = self.settings.matrix
        release = matrix.torch[matrix.stable.built_with].release
        wheels = DownloadWheels(
            name="wheelhouse",
            release=None if self.settings.is_foreign else release,
            python=self.host.python,
            python_minor=self.host.python_minor,
        )
        task = MakeBootstrapChannel(
            name="bootstrap-channel",
            wheels=self.add(wheels, cell),
            python=self.host.python,
            after=self._emulated(cell) if isinstance(cell, Cell) else (),
        )
        return BaseChannel(
            urls=(self.settings.bootstrap_channel.as_uri(),), tasks=(self.add(task, cell),)
        )

    def _package(self, cell: Cell, audit: Task, base: BaseChannel) -> Task:
        (url,) = base.urls
        task = BuildPackage(
            name=f"conda/{cell}",
            cell=cell,
            binaries=self.of[cell.name].binaries,
            channel=url,
            variants=render([cell], self.settings.matrix),
            after=(*base.tasks, audit),
            inputs=(*self.inputs.recipe, *self.inputs.package),
        )
        return self.add(task, cell)

    def _package_tests(self, cell: Cell, package: Task, base: BaseChannel) -> Task:
        task = TestPackage(
            name=f"conda-test/{cell}",
            cell=cell,
            package=package,
            binaries=self.of[cell.name].binaries,
            channels=base.urls,
            after=base.tasks,
        )
        return self.add(task, cell)

    def _prefix(self, cell: Cell, package: Task, base: BaseChannel) -> Task:
        task = InstallPackage(
            name=f"prefix/{cell}",
            cell=cell,
            package=package,
            channels=base.urls,
            python_minor=self.host.python_minor,
            after=base.tasks,
            inputs=self.inputs.smoke,
        )
        return self.add(task, cell)

    def _linked_channel(
        self, cell: Cell, env: TorchEnv, package: Task, base: BaseChannel
    ) -> BaseChannel:
        """A channel with a pytorch for the cell's package, before the channels of `base`.

        The torch that stable glue is compiled against may have another CUDA than the
        kernels, or none. So a stable CUDA package gets the newest torch of its major that
        the glue serves, fetched once the package is made. If no such torch fits this
        Python, the task is skipped.
        """
        if cell.stable and cell.cuda_major is not None:
            env = self._env_of_cuda(cell, cell.cuda_major)
            torch = self._torch_of_cuda(cell, cell.cuda_major, env, package)
        else:
            torch = self._torch_env(cell, env)
        folder = self.settings.linked_channels / env.name
        task = LinkTorch(
            name=f"linked/{env.name}",
            env=torch,
            env_folder=str(env.folder),
            folder=folder,
            python_minor=self.host.python_minor,
        )
        return BaseChannel(
            urls=(folder.as_uri(), *base.urls),
            tasks=(self.add(task, cell), torch, *base.tasks),
        )

    def _env_of_cuda(self, cell: Cell, cuda_major: int) -> TorchEnv:
        """The environment with the newest torch of a CUDA major that the stable glue serves.

        Its release is "" if there is no such torch for this Python.
        """
        matrix = self.settings.matrix
        python = self.host.python_minor
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
            folder=self.settings.envs / name,
            python=self.host.python,
            release=release,
            cache=self._own_cache(name),
            find_links=False,
        )

    def _torch_of_cuda(self, cell: Cell, cuda_major: int, env: TorchEnv, package: Task) -> Task:
        if env.release:
            return self._torch_env(cell, env, after=(package,))
        task = ReportNoTorch(
            name=f"env/{env.name}", cuda_major=cuda_major, python_minor=self.host.python_minor
        )
        return self.add(task, cell)

    # Tools.

    def add_tool(self, tool: Tool) -> None:
        """Adds the wheel of a tool, its one file, its conda packages, and their runs."""
        folders = [self.settings.repo / name for name in (tool.folder, *tool.packs)]
        files = tuple(p for p in self.inputs.package if any(map(p.is_relative_to, folders)))
        pack = PackTool(
            name=f"pure/{tool.name}", tool=tool, files=files, epoch=self.epoch, inputs=files
        )
        wheel = self.add(pack, tool)
        audit = self.add(AuditTool(name=f"pure-audit/{tool.name}", tool=tool, wheel=wheel), tool)
        for extra in ("", *tool.extras):
            self._install_tool(tool, extra, wheel, audit)
        if tool.zipapp:
            self._zipapp(tool, wheel, audit)
        self._noarch(tool, wheel, audit)

    def _install_tool(self, tool: Tool, extra: str, wheel: Task, audit: Task) -> None:
        task = InstallTool(
            name=f"pure-venv/{_with_extra(tool, extra)}",
            tool=tool,
            extra=extra,
            wheel=wheel,
            python=self.host.python,
            after=(audit,),
        )
        self.add(task, tool)

    def _zipapp(self, tool: Tool, wheel: Task, audit: Task) -> None:
        pack = PackZipapp(
            name=f"zipapp/{tool.name}",
            tool=tool,
            wheel=wheel,
            epoch=self.epoch,
            carried={name: own_versions()[name] for name in CARRIED},
            after=(audit,),
        )
        zipapp = self.add(pack, tool)
        run = RunZipapp(
            name=f"zipapp-run/{tool.name}", tool=tool, zipapp=zipapp, python=self.host.python
        )
        self.add(run, tool)

    def _noarch(self, tool: Tool, wheel: Task, audit: Task) -> None:
        base = self._base_channel(tool)
        (url,) = base.urls
        build = BuildNoarch(
            name=f"noarch/{tool.name}",
            tool=tool,
            wheel=wheel,
            channel=url,
            after=(*base.tasks, audit),
        )
        packages = self.add(build, tool)
        for extra in ("", *tool.extras):
            channel = self._extras_channel(tool, base)
            install = InstallNoarch(
                name=f"noarch-prefix/{_with_extra(tool, extra)}",
                tool=tool,
                extra=extra,
                packages=packages,
                channels=channel.urls,
                python_minor=self.host.python_minor,
                after=channel.tasks,
            )
            self.add(install, tool)

    def _extras_channel(self, tool: Tool, base: BaseChannel) -> BaseChannel:
        """A channel of what tools and their extras require, before a channel that is a folder.

        Only a public channel is sure to have that; the bootstrap channel of this checkout or,
        with --channel, of another one lacks it.
        """
        if not base.urls[-1].startswith("file:"):
            return base
        folder = self.settings.build / "extras-channel"
        task = LinkExtras(
            name="extras-channel",
            versions=own_versions(),
            folder=folder,
            python_minor=self.host.python_minor,
        )
        return BaseChannel(
            urls=(folder.as_uri(), *base.urls), tasks=(self.add(task, tool), *base.tasks)
        )


def _with_extra(tool: Tool, extra: str) -> str:
    return f"{tool.name}-{extra}" if extra else tool.name
