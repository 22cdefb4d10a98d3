"""Turns cells into tasks; what cells share is one task."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from release import (
    REPO,
    build_steps,
    conda_plan,
    fat_steps,
    pack_steps,
    toolchain_steps,
    verify_steps,
)
from release.audit import audit
from release.cells import Cell
from release.host import Host, borrowed_torch, toolchain
from release.paths import ENVS
from release.provenance import commit, source_epoch
from release.schema import Matrix
from release.store import sources
from release.tasks import Task
from release.toolchains import Toolchain
from release.variants import for_conda

TOOL = REPO / "scripts" / "release"
# What one torch with CUDA puts on the disk (its wheels unpacked; environments are hard links), and
# how much of that may lie there at a time: two, so that one is fetched while the other is used.
CUDA_TORCH = 7_500_000_000
ROOM = 2 * CUDA_TORCH


@dataclass(frozen=True)
class Options:
    """What the command line decided.

    Attributes:
        channel: the base channel's URL, or None for the bootstrap channel.
        jobs: compilers at a time.
        carried: thin wheels of other cells, which an earlier run made from the same sources.
    """

    channel: str | None
    jobs: int
    carried: Mapping[str, Path] = field(default_factory=dict)


class Plan:
    """Collects tasks by name, so that cells share what they have in common."""

    def __init__(
        self, matrix: Matrix, host: Host, options: Options, cells: Sequence[Cell] = ()
    ) -> None:
        self.matrix, self.host, self.options = matrix, host, options
        self.glues_on_cpu = {cell.glue for cell in cells if cell.cuda_major is None}
        self.tasks: dict[str, Task] = {}
        self.requested = 0

    def add(self, task: Task) -> str:
        """Adds a task, or the cells of a task that is there already; returns its name."""
        self.requested += 1
        if old := self.tasks.get(task.name):
            groups = (*old.groups, *(g for g in task.groups if g not in old.groups))
            self.tasks[task.name] = Task(**{**vars(old), "groups": groups})
        else:
            self.tasks[task.name] = task
        return task.name

    def python_facts(self) -> dict[str, str]:
        return {"python": self.host.python, "minor": self.host.python_minor}

    def torch_release(self, cell: Cell) -> str:
        """The torch of the invoking environment where the cell is for it, else the matrix's."""
        torch = self.host.torch
        if torch and torch.is_release and torch.version_tuple == _tuple(cell.torch_minor):
            return torch.version.split("+")[0]
        return cell.torch.release

    def cell(self, cell: Cell) -> None:
        """Everything one cell needs."""
        groups = (cell.name,)
        env = self._torch_env(cell, groups)
        binaries = (*(self._kernels(name, groups) for name in cell.kernels),)
        binaries = (self._glue(cell, env, groups), *binaries)
        toolkit = self._toolkit_of(cell, groups)
        checked = self.add(
            Task(
                f"audit/{cell.name}",
                partial(
                    audit,
                    cell=cell,
                    env=env,
                    binaries=binaries,
                    manylinux=self.matrix.package.manylinux,
                    toolkit=toolkit,
                ),
                needs=(env, *binaries, *([toolkit] if toolkit else [])),
                facts={"manylinux": self.matrix.package.manylinux},
                groups=groups,
            )
        )
        wheel = self._wheel(cell, binaries, checked, groups)
        self._venv(cell, wheel, env, groups)
        if for_conda(cell):
            conda_plan.add(self, cell, env, binaries, checked, groups)

    def _torch_env(self, cell: Cell, groups: tuple[str, ...]) -> str:
        if torch := borrowed_torch(cell, self.host):
            name = f"torch-{torch.version}-abi{torch.cxx11_abi}"
            run = partial(build_steps.borrowed_env, root=torch.root, name=name)
            facts = {"root": str(torch.root), "version": torch.version}
            return self.add(Task(f"env/{name}", run, facts=facts, groups=groups))
        name, release = self._torch_name(cell), self.torch_release(cell)
        cache = self._cache(cell)
        run = partial(
            build_steps.torch_env,
            python=self.host.python,
            release=release,
            name=name,
            cache=cache,
        )
        task = Task(f"env/{name}", run, facts=self.python_facts(), groups=groups)
        if cache:
            task = replace(task, sheds=(ENVS / name, cache), holds=CUDA_TORCH)
        return self.add(task)

    def _torch_name(self, cell: Cell) -> str:
        return f"torch-{self.torch_release(cell)}-py{self.host.python_minor}"

    def _cache(self, cell: Cell) -> Path | None:
        """A cache for the cell's torch alone, if that is too large to be kept: a CUDA build."""
        kept = cell.stable or borrowed_torch(cell, self.host)
        return None if kept else build_steps.torch_cache(self._torch_name(cell))

    def stable_torch(self, cell: Cell, package: str, groups: tuple[str, ...]) -> str | None:
        """The newest torch of PyPI that stable CUDA glue serves with its own CUDA major.

        Fetched once `package` is made, as nothing before that needs it; None: PyPI has none.
        """
        served = [
            torch
            for minor in self.matrix.minors()
            if (torch := self.matrix.torch[minor]).cuda_major == cell.cuda_major
            and self.matrix.served_by_stable(minor)
            and self.host.python_minor in torch.pythons
        ]
        if not served:
            return None
        release = served[-1].release
        name = f"torch-{release}-cu{cell.cuda_major}-py{self.host.python_minor}"
        cache = build_steps.torch_cache(name)
        run = partial(
            build_steps.torch_env,
            python=self.host.python,
            release=release,
            name=name,
            cache=cache,
            find_links=False,
        )
        task = Task(f"env/{name}", run, needs=(package,), facts=self.python_facts(), groups=groups)
        return self.add(replace(task, sheds=(ENVS / name, cache), holds=CUDA_TORCH))

    def _compiler_facts(self) -> dict[str, object]:
        return {
            "compiler": str(self.host.compiler),
            "commit": commit(),
            "epoch": source_epoch(),
            "environment": build_steps.compiler_facts(),
            "machine": platform.machine(),
        }

    def _kernels(self, name: str, groups: tuple[str, ...]) -> str:
        wanted = self.matrix.kernels[name]  # type: ignore[index]
        chosen = toolchain(name, self.host, self.matrix)
        assert not isinstance(chosen, str), chosen
        made = self._toolkit(chosen, groups) if chosen else None
        run = partial(
            build_steps.kernels,
            name=name,
            wanted=wanted,
            toolchain=chosen,
            made=made,
            jobs=self.options.jobs,
        )
        facts = {**self._compiler_facts(), "wanted": wanted.model_dump(), "with": str(chosen)}
        return self.add(
            Task(
                f"kernels/{name}",
                run,
                needs=(made,) if made else (),
                inputs=build_steps.SOURCES,
                facts=facts,
                groups=groups,
            )
        )

    def _toolkit_of(self, cell: Cell, groups: tuple[str, ...]) -> str | None:
        """The task that makes the toolkit of a cell's CUDA kernels, if it has any and one does."""
        if cell.cuda_major is None:
            return None
        chosen = toolchain(str(cell.variant.kernels), self.host, self.matrix)
        return self._toolkit(chosen, groups) if isinstance(chosen, Toolchain) else None

    def _toolkit(self, chosen: Toolchain, groups: tuple[str, ...]) -> str | None:
        """The task that makes a CUDA toolkit; None for an installed one."""
        if chosen.nvcc:
            return None
        helper = self._toolkit(chosen.fatbinary, groups) if chosen.fatbinary else None
        wheels = self.matrix.toolkits[chosen.version]
        run = partial(toolchain_steps.toolkit, toolchain=chosen, wheels=wheels, fatbinary=helper)
        return self.add(
            Task(
                toolchain_steps.task_name(chosen),
                run,
                needs=(helper,) if helper else (),
                inputs=(toolchain_steps.ADAPTER,),
                facts={"with": str(chosen), "wheels": wheels.model_dump()},
                groups=groups,
            )
        )

    def _glue(self, cell: Cell, env: str, groups: tuple[str, ...]) -> str:
        run = partial(build_steps.glue, cell=cell, env=env, jobs=self.options.jobs)
        return self.add(
            Task(
                f"glue/{cell.glue}",
                run,
                needs=(env,),
                inputs=build_steps.SOURCES,
                facts=self._compiler_facts(),
                groups=groups,
            )
        )

    def _wheel(
        self, cell: Cell, binaries: tuple[str, ...], checked: str, groups: tuple[str, ...]
    ) -> str:
        sdist = self.add(
            Task(
                "sdist",
                pack_steps.sdist,
                inputs=pack_steps.package_sources(),
                facts={"epoch": source_epoch()},
                groups=groups,
            )
        )
        return self.add(
            Task(
                f"wheel/{cell.name}",
                partial(pack_steps.wheel, cell=cell, binaries=binaries),
                needs=(sdist, checked, *binaries),
                inputs=(TOOL / "wheels.py", TOOL / "paths.py"),
                groups=groups,
            )
        )

    def _venv(self, cell: Cell, wheel: str, env: str, groups: tuple[str, ...]) -> None:
        borrowed = borrowed_torch(cell, self.host)
        run = partial(
            verify_steps.venv,
            cell=cell,
            python=self.host.python,
            torch=self.torch_release(cell),
            cache=self._cache(cell),
            borrowed=borrowed.root.parent if borrowed else None,
        )
        smoke = (verify_steps.SMOKE, TOOL / "environments.py")
        venv = self.add(
            Task(
                f"venv/{cell.name}",
                run,
                # The environment itself is not read, but the cache that it was made from.
                needs=(wheel, env),
                inputs=smoke,
                facts=self.python_facts(),
                groups=groups,
                sheds=(verify_steps.venv_folder(cell),) if self._cache(cell) else (),
            )
        )
        if cell.cuda_major and not self.host.driver and cell.glue in self.glues_on_cpu:
            return  # without a GPU it would train as the CPU's cell does
        example = tuple(sources(REPO, "examples/digits*.py"))
        digits = partial(verify_steps.digits, cell=cell)
        self.add(Task(f"digits/{cell.name}", digits, needs=(venv,), inputs=example, groups=groups))


def _tuple(minor: str) -> tuple[int, int]:
    major, _, rest = minor.partition(".")
    return int(major), int(rest)


def make_plan(cells: Sequence[Cell], matrix: Matrix, host: Host, options: Options) -> Plan:
    """The tasks of all cells, each in an order in which it can run."""
    plan = Plan(matrix, host, options, cells)
    for cell in cells:
        plan.cell(cell)
    fat_steps.add(plan, cells)
    return plan


def space_needed(plan: Plan) -> int:
    """A rough number of bytes that a run from nothing puts on the disk at a time."""
    # What is installed a second time is made of hard links.
    sizes = {"env": 1.2e9, "venv": 2e8, "prefix": 3e8, "bootstrap-channel": 1.5e9, "toolkit": 8e8}
    kept = [task.name for task in plan.tasks.values() if not task.sheds]
    held = sum(task.holds for task in plan.tasks.values())
    return int(sum(sizes.get(Path(name).parts[0], 2e7) for name in kept)) + min(held, ROOM)
