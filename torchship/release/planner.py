"""Plans the tasks of cells; a task that several cells need is planned once."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from . import EXAMPLE, FOREIGN, SMOKE, conda_steps, pack_steps, toolchains, verify_steps
from .audit import audit
from .build_steps import COMPILER_VARIABLES, glue, kernels
from .cells import Cell, for_conda, render, required
from .emulation import root
from .environments import TorchEnv, torch_env
from .host import Host, borrowed_torch, toolchain
from .paths import BOOTSTRAP, CACHE, LINKED, NATIVE_BINARIES
from .schema import Matrix, pair
from .store import commit, source_epoch, sources
from .tasks import Task
from .toolchains import ADAPTER

CSRC = sources("csrc/**/*")
RECIPE = tuple(path for path in sources("recipe/*") if not path.stem.startswith("variants"))
EXAMPLES = sources(f"{EXAMPLE.parent.name}/{EXAMPLE.stem}*.py")
# The bytes of an unpacked torch, which uv's cache and an environment share by hard links. ROOM is
# for two torches with CUDA, so that the tool can fetch one while it uses the other.
CUDA_TORCH, CPU_TORCH = 7_500_000_000, 1_200_000_000
ROOM = 2 * CUDA_TORCH


class Plan:
    """All tasks of a run, in an order in which they can run.

    Without a `channel`, they make a bootstrap channel. `carried` are thin wheels of other cells,
    which an earlier run made from the same sources. Without `pack`, nothing is packed or run.
    """

    def __init__(
        self,
        matrix: Matrix,
        host: Host,
        cells: Sequence[Cell] = (),
        channel: str | None = None,
        carried: Mapping[str, Path] | None = None,
        pack: bool = True,
    ) -> None:
        self.matrix, self.host, self.cells, self.channel = matrix, host, cells, channel
        self.tasks: dict[str, Task] = {}
        self.binaries: dict[str, tuple[Task, ...]] = {}  # of a cell: they make its glue and kernels
        self.files = pack_steps.package_sources() if pack else ()
        environment = {name: os.environ[name] for name in COMPILER_VARIABLES if name in os.environ}
        self.compiling: dict[str, Any] = {"commit": commit(), "epoch": source_epoch()}
        self.compiling |= {"compiler": str(host.compiler), "environment": environment}
        for cell in cells:
            env = self._env_of(cell)
            self._binaries(cell, env)
            if pack:
                self._wheel(cell, env)
                if for_conda(cell):
                    self._conda(cell, env)
        if cells and pack:
            self.add_fat_wheel(carried or {})

    def add(
        self,
        cell: Cell | None,
        name: str,
        step: Callable[..., Sequence[Path]],
        arguments: Mapping[str, Any],
        needs: Sequence[Task] = (),
        **options: Any,
    ) -> Task:
        """Adds a task, or finds the task of that name, and notes that the task serves the cell.

        The task needs the tasks in `needs` and the tasks among its arguments.
        """
        if name not in self.tasks:
            parts = [v if isinstance(v, tuple) else (v,) for v in (*arguments.values(), (*needs,))]
            found = tuple(task for task in chain(*parts) if isinstance(task, Task))
            self.tasks[name] = Task(name, partial(step, **arguments), found, **options)
        task = self.tasks[name]
        if cell and cell.name not in task.cells:
            task.cells.append(cell.name)
        return task

    def _env_of(self, cell: Cell) -> TorchEnv:
        """The environment with the torch that the cell's glue is compiled against."""
        host, release, borrowed = self.host, cell.torch.release, borrowed_torch(cell, self.host)
        if borrowed:
            name = f"torch-{borrowed.version}-abi{borrowed.cxx11_abi}"
            return TorchEnv(name, host.python, release, borrowed=borrowed.root)
        name = f"torch-{release}-py{host.python_minor}"
        return TorchEnv(name, host.python, release, None if cell.stable else CACHE / f"uv-{name}")

    def _env(self, cell: Cell, env: TorchEnv, needs: Sequence[Task] = ()) -> Task:
        """The task that makes an environment; an environment with its own cache is temporary."""
        options: dict[str, Any] = {}
        if env.cache:
            size = CUDA_TORCH if cell.torch.cuda else CPU_TORCH
            options = {"temporary": (env.folder, env.cache), "disk": size}
        needs = (*needs, *self._emulated(cell))
        return self.add(cell, f"env/{env.name}", torch_env, {"env": env}, needs, **options)

    def _emulated(self, cell: Cell) -> tuple[Task, ...]:
        """The task that makes the Python of another platform; () for this machine's platform."""
        if not FOREIGN:
            return ()
        debian = self.matrix.platforms[cell.platform].debian
        return (self.add(cell, "root", root, {"debian": debian, "minor": self.host.python_minor}),)

    def _binaries(self, cell: Cell, env: TorchEnv) -> None:
        """Adds the tasks for the cell's glue and kernels, and for the checks of both."""
        compiled: dict[str, Any] = {"inputs": CSRC, "facts": self.compiling}
        torch, toolkit = self._env(cell, env), None
        given = {"glue": cell.glue, "cxx11_abi": cell.cxx11_abi, "env": torch}
        made = [self.add(cell, f"glue/{cell.glue}", glue, given, **compiled)]
        for name in cell.kernels:
            chosen = toolchain(name, self.host, self.matrix)
            toolkit = runtime = None
            if chosen and not chosen.nvcc:
                given = {"toolchain": chosen, "wheels": self.matrix.toolkits[chosen.version]}
                label, step, inputs = f"toolkit/{chosen.name}", toolchains.toolkit, (ADAPTER,)
                toolkit = self.add(cell, label, step, given, inputs=inputs)
            if chosen and FOREIGN:
                given = {"version": chosen.version, "python": self.host.python}
                label, needs = f"toolkit/runtime-{chosen.version}", self._emulated(cell)
                runtime = self.add(cell, label, toolchains.runtime, given, needs)
            given = {"name": name, "wanted": self.matrix.kernels[name], "toolchain": chosen}
            given |= {"made": toolkit, "runtime": runtime}
            made.append(self.add(cell, f"kernels/{name}", kernels, given, **compiled))
        cuda = f"kernels-{cell.variant.kernels}"
        natives = (NATIVE_BINARIES / cuda / f"{cuda}.so",) if FOREIGN and cell.cuda_major else ()
        self.binaries[cell.name] = binaries = tuple(made)
        given = {"cell": cell, "env": torch, "binaries": binaries, "toolkit": toolkit}
        given |= {"manylinux": self.matrix.package.manylinux, "natives": natives}
        there = tuple(path for path in natives if path.exists())
        self.add(cell, f"audit/{cell}", audit, given, inputs=there)

    def _wheel(self, cell: Cell, env: TorchEnv) -> None:
        """Adds the tasks for the thin wheel, and for its runs in an environment."""
        facts = {"epoch": self.compiling["epoch"]}
        sdist = self.add(cell, "sdist", pack_steps.sdist, {}, inputs=self.files, facts=facts)
        given = {"cell": cell, "sdist": sdist, "binaries": self.binaries[cell.name]}
        audited = self.tasks[f"audit/{cell}"]
        wheel = self.add(cell, f"wheel/{cell}", pack_steps.wheel, given, [audited])
        temporary = (verify_steps.folder_of(cell),) if env.cache else ()
        options: dict[str, Any] = {"inputs": (SMOKE,), "temporary": temporary}
        given, name = {"cell": cell, "wheel": wheel, "env": env}, f"venv/{cell}"
        # The task installs from the cache of `env`, if `env` has one, before both are deleted.
        venv = self.add(cell, name, verify_steps.venv, given, [self._env(cell, env)], **options)
        twin = any(c.glue == cell.glue and c.cuda_major is None for c in self.cells)
        # Without a GPU, a CUDA cell trains like its CPU twin, so it leaves `example` to that twin.
        if not FOREIGN and (cell.cuda_major is None or self.host.driver or not twin):
            given, name = {"cell": cell, "venv": venv}, f"{EXAMPLE.stem}/{cell}"
            self.add(cell, name, verify_steps.example, given, inputs=EXAMPLES)

    def add_fat_wheel(self, carried: Mapping[str, Path]) -> None:
        """Adds the task that makes the fat wheel, and its runs in environments that stay."""
        tasks, kinds = self.tasks, ("wheel", "venv", EXAMPLE.stem)
        names = {cell.name: [f"{kind}/{cell}" for kind in kinds] for cell in self.cells}
        wheels = {cell: [tasks[n] for n in found if n in tasks] for cell, found in names.items()}
        given = {"wheels": wheels, "required": required(self.matrix), "carried": carried}
        needs = [*chain(*wheels.values())]
        options = {"anyway": True, "inputs": (*carried.values(),)}
        options["facts"] = {"limit": pack_steps.LIMIT}
        fat = self.add(None, "fat-wheel", pack_steps.fat_wheel, given, needs, **options)
        for cell in self.cells:
            venv, name = tasks[f"venv/{cell}"], f"fat-run/{cell.glue}"
            # The fat wheel does not run beside temporary torches; `--verify full` tries them all.
            # Under qemu a run is slow, and the thin wheels' runs test the fat wheel's binaries.
            if not (FOREIGN or venv.temporary or name in tasks):
                given = {"glue": cell.glue, "venv": venv, "fat_wheel": fat}
                self.add(cell, name, verify_steps.fat_run, given, inputs=(SMOKE,))

    def _conda(self, cell: Cell, env: TorchEnv) -> None:
        """Adds the tasks for the conda package, its tests, and its run in a prefix."""
        url, base = self._base_channel(cell)
        binaries, variants = self.binaries[cell.name], render([cell], self.matrix)
        given = {"cell": cell, "binaries": binaries, "channel": url, "variants": variants}
        inputs, name, step = (*RECIPE, *self.files), f"conda/{cell}", conda_steps.package
        needs = (*base, self.tasks[f"audit/{cell}"])
        package = self.add(cell, name, step, given, needs, inputs=inputs)
        channels: tuple[str, ...] = (url,)
        plain = cell.stable and cell.cuda_major is None
        # The bootstrap channel of this machine's platform has a pytorch for stable glue on the CPU.
        # Otherwise, a pytorch package links to an installed torch. Under qemu, only the stable CPU
        # package is installed; the runs of the thin wheels test the binaries of the other cells.
        installed = plain or not FOREIGN
        if base and installed and (FOREIGN or not plain):
            linked, more = self._linked_channel(cell, env, package)
            channels, base = (linked, url), [*more, *base]
        given = {"cell": cell, "package": package, "channels": channels}
        tested, step = {**given, "binaries": binaries}, conda_steps.package_tests
        self.add(cell, f"conda-test/{cell}", step, tested, base)
        if installed:
            given["python"] = self.host.python_minor
            name, step = f"prefix/{cell}", conda_steps.prefix
            self.add(cell, name, step, given, base, inputs=(SMOKE,))

    def _base_channel(self, cell: Cell) -> tuple[str, list[Task]]:
        """The base channel's URL, and for a bootstrap channel its task, which all cells share."""
        if self.channel:
            return self.channel, []
        release = self.matrix.torch[self.matrix.stable.built_with].release
        python = {"python": self.host.python, "minor": self.host.python_minor}
        given: dict[str, Any] = {"release": None if FOREIGN else release}
        wheels = self.add(cell, "wheelhouse", conda_steps.download, given, facts=python)
        given = {"wheels": wheels, "python": self.host.python}
        step, needs = conda_steps.bootstrap, self._emulated(cell)
        return BOOTSTRAP.as_uri(), [self.add(cell, "bootstrap-channel", step, given, needs)]

    def _linked_channel(self, cell: Cell, env: TorchEnv, package: Task) -> tuple[str, list[Task]]:
        """The URL of a channel with a pytorch for the cell's package, and the tasks that make it.

        The torch that stable glue is compiled against may have another CUDA than the kernels, or
        none. So a stable CUDA package gets the newest torch of its major that the glue serves,
        fetched once the package is made. If no such torch fits this Python, the task is skipped.
        """
        python, major = self.host.python_minor, cell.cuda_major
        if not cell.stable or major is None:
            torch = self._env(cell, env)
        else:
            every, oldest = self.matrix.torch.values(), pair(self.matrix.stable.target)
            fits = [t for t in every if t.cuda_major == major and python in t.pythons]
            served = [torch.release for torch in fits if pair(torch.release) >= oldest]
            release = max(served, key=pair, default="none")
            name = f"{f'torch-{release}' if served else release}-cu{major}-py{python}"
            env = TorchEnv(name, self.host.python, release, CACHE / f"uv-{name}", find_links=False)
            if served:
                torch = self._env(cell, env, [package])
            else:
                given = {"cuda_major": major, "python": python}
                torch = self.add(cell, f"env/{name}", conda_steps.no_torch, given)
        folder, where = LINKED / env.name, {"where": str(env.folder)}
        given = {"env": torch, "folder": folder, "python": python}
        linked = self.add(cell, f"linked/{env.name}", conda_steps.link, given, facts=where)
        return folder.as_uri(), [linked, torch]
