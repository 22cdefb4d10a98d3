"""Turns cells into tasks; cells share the tasks that they have in common."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from release import (
    EXAMPLE,
    FOREIGN,
    SMOKE,
    build_steps,
    conda_steps,
    emulation,
    environments,
    fat_steps,
    pack_steps,
    toolchain_steps,
    verify_steps,
)
from release.audit import audit
from release.cells import Cell, required
from release.host import Host, borrowed_torch, toolchain
from release.paths import BOOTSTRAP, CACHE, ENVS, LINKED, NATIVE_BINARIES
from release.provenance import commit, source_epoch
from release.schema import Matrix, pair
from release.store import sources
from release.tasks import Task
from release.toolchains import Toolchain
from release.variants import for_conda, render

CSRC = sources("csrc/**/*")
RECIPE = tuple(path for path in sources("recipe/*") if not path.stem.startswith("variants"))
EXAMPLES = sources(f"{EXAMPLE.parent.name}/{EXAMPLE.stem}*.py")
# Bytes of one unpacked torch (environments are hard links into its cache), and how many with CUDA
# may lie on the disk at a time: two torches, so that one is fetched while the other is used.
CUDA_TORCH, CPU_TORCH = 7_500_000_000, 1_200_000_000
ROOM = 2 * CUDA_TORCH


@dataclass(frozen=True)
class Options:
    """What the command line decided: the base channel's URL, or None for the bootstrap channel;
    thin wheels of other cells, made earlier from the same sources; whether to pack what passes."""

    channel: str | None
    carried: Mapping[str, Path] = field(default_factory=dict)
    pack: bool = True


@dataclass
class CellTasks:
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


class Env(NamedTuple):
    """An environment with torch, and the cache that is deleted with it, if it has one."""

    name: str
    task: Task
    cache: Path | None = None


class Plan:
    """All tasks of a run, in an order in which they can run."""

    def __init__(
        self, matrix: Matrix, host: Host, options: Options, cells: Sequence[Cell] = ()
    ) -> None:
        self.matrix, self.host, self.options, self.cells = matrix, host, options, cells
        self.tasks: dict[str, Task] = {}
        self.of: dict[str, CellTasks] = {}
        self.sdist: Task | None = None
        self.fat_wheel: Task | None = None
        for cell in cells:
            self._plan(cell)
        if cells and options.pack:
            self.add_fat_wheel(cells)

    def add(self, task: Task, *cells: Cell) -> Task:
        """Adds a task, or finds the one of its name; it serves these cells too."""
        task = self.tasks.setdefault(task.name, task)
        task.cells.extend(cell.name for cell in cells if cell.name not in task.cells)
        return task

    def _plan(self, cell: Cell) -> None:
        env = self._torch_env(cell)
        kernels = [self._kernels(name, cell) for name in cell.kernels]
        own = self.of[cell.name] = CellTasks((self._glue(cell, env), *kernels))
        toolkit = next((need for task in kernels for need in task.needs), None)
        cuda = f"kernels-{cell.variant.kernels}"
        natives = (NATIVE_BINARIES / cuda / f"{cuda}.so",) if FOREIGN and cell.cuda_major else ()
        found = {"binaries": own.binaries, "toolkit": toolkit, "natives": natives}
        manylinux = self.matrix.package.manylinux
        run = partial(audit, cell=cell, env=env.task, manylinux=manylinux, **found)
        needs = (env.task, *own.binaries, *([toolkit] if toolkit else []))
        there = tuple(path for path in natives if path.exists())
        own.audit = self.add(Task(f"audit/{cell.name}", run, needs, inputs=there), cell)
        if not self.options.pack:
            return
        own.wheel = self._wheel(cell, own)
        own.venv = self._venv(cell, own.wheel, env)
        twin = any(c.glue == cell.glue and c.cuda_major is None for c in self.cells)
        if not FOREIGN and (cell.cuda_major is None or self.host.driver or not twin):
            # Without a GPU a CUDA cell would train exactly as its twin for the CPU does.
            run = partial(verify_steps.example, cell=cell, venv=own.venv)
            task = Task(f"{EXAMPLE.stem}/{cell.name}", run, needs=(own.venv,), inputs=EXAMPLES)
            own.example = self.add(task, cell)
        if for_conda(cell):
            self._conda(cell, own, env)

    # Environments with torch.

    def torch_release(self, cell: Cell) -> str:
        """The torch of the calling environment if the cell is for it, else the matrix's."""
        torch = self.host.torch
        if torch and torch.is_release and torch.version_tuple == pair(cell.torch_minor):
            return torch.version.split("+")[0]
        return cell.torch.release

    def _torch_env(self, cell: Cell) -> Env:
        if torch := borrowed_torch(cell, self.host):
            name = f"torch-{torch.version}-abi{torch.cxx11_abi}"
            run = partial(environments.borrowed_env, root=torch.root, name=name)
            return Env(name, self.add(Task(f"env/{name}", run), cell))
        release = self.torch_release(cell)
        name = f"torch-{release}-py{self.host.python_minor}"
        return self._new_torch(cell, name, release, stays=cell.stable)

    def _new_torch(
        self,
        cell: Cell,
        name: str,
        release: str,
        *,
        stays: bool = False,
        find_links: bool = True,
        needs: tuple[Task, ...] = (),
    ) -> Env:
        """A torch that is fetched.

        Unless it `stays`, it is deleted after its last reader, and its own cache with it.
        """
        cache = None if stays else CACHE / f"uv-{name}"
        run = partial(
            environments.torch_env,
            python=self.host.python,
            release=release,
            name=name,
            cache=cache,
            find_links=find_links,
        )
        temporary = (ENVS / name, cache) if cache else ()
        disk = CUDA_TORCH if cache and cell.torch.cuda else CPU_TORCH
        if FOREIGN:
            needs += (self._emulated(cell),)
        task = Task(f"env/{name}", run, needs, temporary=temporary, disk=disk)
        return Env(name, self.add(task, cell), cache)

    def _emulated(self, cell: Cell) -> Task:
        facts = {
            "debian": self.matrix.platforms[cell.platform].debian,
            "minor": self.host.python_minor,
        }
        run = partial(emulation.root, **facts)
        return self.add(Task("root", run, facts=facts, disk=200_000_000), cell)

    # Binaries.

    def _compiler_facts(self) -> dict[str, object]:
        return {
            "compiler": str(self.host.compiler),
            "commit": commit(),
            "epoch": source_epoch(),
            "environment": build_steps.compiler_facts(),
            "machine": platform.machine(),
        }

    def _kernels(self, name: str, cell: Cell) -> Task:
        chosen = toolchain(name, self.host, self.matrix)
        made = self._toolkit(chosen, cell) if chosen else None
        wanted = self.matrix.kernels[name]  # type: ignore[index]
        runtime = self._runtime(chosen, cell) if chosen and FOREIGN else None
        run = partial(
            build_steps.kernels,
            name=name,
            wanted=wanted,
            toolchain=chosen,
            made=made,
            runtime=runtime,
        )
        needs = tuple(filter(None, (made, runtime)))
        facts = self._compiler_facts()
        return self.add(Task(f"kernels/{name}", run, needs, inputs=CSRC, facts=facts), cell)

    def _glue(self, cell: Cell, env: Env) -> Task:
        run = partial(build_steps.glue, glue=cell.glue, cxx11_abi=cell.cxx11_abi, env=env.task)
        facts = self._compiler_facts()
        task = Task(f"glue/{cell.glue}", run, (env.task,), inputs=CSRC, facts=facts)
        return self.add(task, cell)

    def _runtime(self, chosen: Toolchain, cell: Cell) -> Task:
        version = chosen.version
        run = partial(toolchain_steps.runtime, version=version, python=self.host.python)
        needs = (self._emulated(cell),)
        return self.add(Task(f"toolkit/runtime-{version}", run, needs), cell)

    def _toolkit(self, chosen: Toolchain, cell: Cell) -> Task | None:
        """The task that makes a CUDA toolkit; None for an installed one."""
        if chosen.nvcc:
            return None
        helper = self._toolkit(chosen.fatbinary, cell) if chosen.fatbinary else None
        wheels = self.matrix.toolkits[chosen.version]
        run = partial(toolchain_steps.toolkit, toolchain=chosen, wheels=wheels, fatbinary=helper)
        needs, inputs = (helper,) if helper else (), (toolchain_steps.ADAPTER,)
        task = Task(f"toolkit/{chosen.name}", run, needs, inputs=inputs, disk=800_000_000)
        return self.add(task, cell)

    # Wheels.

    def _wheel(self, cell: Cell, own: CellTasks) -> Task:
        package = pack_steps.package_sources()
        facts = {"epoch": source_epoch()}
        self.sdist = self.add(Task("sdist", pack_steps.sdist, inputs=package, facts=facts), cell)
        run = partial(pack_steps.wheel, cell=cell, sdist=self.sdist, binaries=own.binaries)
        needs = (self.sdist, own.audit, *own.binaries)
        return self.add(Task(f"wheel/{cell.name}", run, needs), cell)

    def _venv(self, cell: Cell, wheel: Task, env: Env) -> Task:
        borrowed = borrowed_torch(cell, self.host)
        folder = ENVS / f"{cell.name}-venv"
        run = partial(
            verify_steps.venv,
            cell=cell,
            folder=folder,
            wheel=wheel,
            python=self.host.python,
            torch=self.torch_release(cell),
            cache=env.cache,
            borrowed=borrowed.root.parent if borrowed else None,
        )
        # It does not read the environment `env`, but the cache that goes with it.
        task = Task(
            f"venv/{cell.name}",
            run,
            needs=(wheel, env.task),
            inputs=(SMOKE,),
            facts={"minor": self.host.python_minor},
            temporary=(folder,) if env.cache else (),
            disk=200_000_000 if env.cache is None else 0,
        )
        return self.add(task, cell)

    def add_fat_wheel(self, cells: Sequence[Cell]) -> None:
        """The tasks after those of all cells: the fat wheel, and a run of each glue in it."""
        wheels = {name: own.wheel for name, own in self.of.items() if own.wheel}
        runs = {name: own.wheel_runs for name, own in self.of.items()}
        run = partial(
            fat_steps.fat_wheel,
            wheels=wheels,
            runs=runs,
            required=required(self.matrix),
            carried=self.options.carried,
        )
        after = (*wheels.values(), *(task for tasks in runs.values() for task in tasks))
        inputs = tuple(self.options.carried.values())
        limit = {"limit": fat_steps.LIMIT}
        task = Task("fat-wheel", run, after=after, inputs=inputs, facts=limit)
        fat = self.fat_wheel = self.add(task)
        run = partial(fat_steps.fat_site, fat_wheel=fat, python=self.host.python)
        site = self.add(Task("fat-site", run, needs=(fat,)))
        for cell in cells:
            venv = self.of[cell.name].venv
            # With torches that do not stay, `--verify full` runs the fat wheel. Under qemu, one run
            # of each cell has to do: that of its thin wheel, which has the same objects.
            again = f"fat-run/{cell.glue}" in self.tasks or FOREIGN
            if not again and venv and not venv.temporary:
                run = partial(fat_steps.fat_run, glue=cell.glue, venv=venv, site=site)
                inputs = (SMOKE,)
                task = Task(f"fat-run/{cell.glue}", run, needs=(site, venv), inputs=inputs)
                self.of[cell.name].fat_run = self.add(task, cell)

    # Conda packages.

    def _conda(self, cell: Cell, own: CellTasks, env: Env) -> None:
        """The package, its tests, and a prefix in which it runs."""
        assert own.audit is not None
        channel, base = self._base_channel(cell)
        run = partial(
            conda_steps.package,
            cell=cell,
            variants=render([cell], self.matrix),
            binaries=own.binaries,
            channel=channel,
        )
        needs = (*base, own.audit, *own.binaries)
        inputs = (*RECIPE, *pack_steps.package_sources())
        own.package = self.add(Task(f"conda/{cell.name}", run, needs, inputs=inputs), cell)
        channels: tuple[str, ...] = (channel,)
        plain = cell.stable and cell.cuda_major is None
        # The pytorch of the bootstrap channel is the one that stable glue for the CPU needs; that
        # of another platform is linked. Under qemu, one package is installed: the others differ
        # from it in binaries, and those have run out of their wheels.
        installed = plain or not FOREIGN
        if base and installed and (FOREIGN or not plain):
            linked, more = self._linked_channel(cell, env, own.package)
            channels, base = (linked, channel), (*more, *base)
        run = partial(
            conda_steps.package_tests,
            cell=cell,
            package=own.package,
            binaries=own.binaries,
            channels=channels,
        )
        needs = (own.package, *base, *own.binaries)
        self.add(Task(f"conda-test/{cell.name}", run, needs), cell)
        if not installed:
            return
        run = partial(
            conda_steps.prefix,
            cell=cell,
            package=own.package,
            channels=channels,
            python=self.host.python_minor,
        )
        needs, inputs = (own.package, *base), (SMOKE,)
        task = Task(f"prefix/{cell.name}", run, needs, inputs=inputs, disk=300_000_000)
        own.prefix = self.add(task, cell)

    def _base_channel(self, cell: Cell) -> tuple[str, tuple[Task, ...]]:
        """The base channel's URL, and the task that makes it; one channel for all cells."""
        if self.options.channel:
            return self.options.channel, ()
        release = self.matrix.torch[self.matrix.stable.built_with].release
        torch = self.host.torch
        if torch and torch.is_release and torch.version.startswith(release):
            release = torch.version.split("+")[0]
        python = {"python": self.host.python, "minor": self.host.python_minor}
        download = partial(conda_steps.download, release=None if FOREIGN else release)
        wheels = self.add(Task("wheelhouse", download, facts=python), cell)
        run = partial(conda_steps.bootstrap, wheels=wheels, python=self.host.python)
        needs = (wheels, self._emulated(cell)) if FOREIGN else (wheels,)
        task = Task("bootstrap-channel", run, needs, facts=python, disk=1_500_000_000)
        return BOOTSTRAP.as_uri(), (self.add(task, cell),)

    def _linked_channel(self, cell: Cell, env: Env, package: Task) -> tuple[str, tuple[Task, ...]]:
        """The URL of a channel with a pytorch for the cell's package, and the tasks that make it.

        Stable glue is compiled against a torch that may have no CUDA, or another major than the
        kernels. A package with CUDA kernels is installed beside a torch of their major, fetched
        after there is a package to install.
        """
        if cell.stable and cell.cuda_major is not None:
            env = self._torch_of_cuda(cell, package)
        folder = LINKED / env.name
        run = partial(conda_steps.link, env=env.task, folder=folder, python=self.host.python_minor)
        where = {"where": str(ENVS / env.name)}
        task = self.add(Task(f"linked/{env.name}", run, needs=(env.task,), facts=where), cell)
        return folder.as_uri(), (task, env.task)

    def _torch_of_cuda(self, cell: Cell, package: Task) -> Env:
        """PyPI's newest torch that stable glue serves with the cell's own CUDA major."""
        python, major = self.host.python_minor, cell.cuda_major
        served = [
            torch
            for torch in (self.matrix.torch[m] for m in self.matrix.minors())
            if torch.cuda_major == major
            and pair(torch.release) >= pair(self.matrix.stable.target)
            and python in torch.pythons
        ]
        if not served:
            name = f"none-cu{major}-py{python}"
            run = partial(conda_steps.no_torch, cuda_major=major, python=python)
            return Env(name, self.add(Task(f"env/{name}", run), cell))
        release = served[-1].release
        name = f"torch-{release}-cu{major}-py{python}"
        return self._new_torch(cell, name, release, find_links=False, needs=(package,))


def space_needed(plan: Plan) -> int:
    """Roughly how many bytes a run from nothing needs on the disk at its peak."""
    kept = sum(task.disk for task in plan.tasks.values() if not task.temporary)
    return kept + min(ROOM, sum(task.disk for task in plan.tasks.values() if task.temporary))
