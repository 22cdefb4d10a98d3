"""Installs the packed wheels into new environments and runs the wheels there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from ...matrix.cells import Cell
from ...matrix.settings import Settings
from ...paths import fresh, tool
from ...plan.plan import Plan
from ...run.manifest import Run
from ...run.shell import Log, clean_env
from ...run.store import sources
from ...run.tasks import Context, FileTask, Made, Task, Tasks
from ..compile import emulation
from ..compile.environments import MakeTorchEnv, TorchEnv, make_venv
from ..pack.distributions import FatWheel, JoinWheels, PackWheel
from ..step import CellStep, Part


def run_installed(
    log: Log,
    folder: Path,
    glue: str,
    *,
    gpu: bool,
    checker: bool = True,
    site: Path | None = None,
) -> Path:
    """Runs the checker and the smoke test in an environment; returns the smoke test's JSON report.

    Both run in an empty folder, from which Python does not find the source tree. The loader
    must choose `glue`. Without `gpu`, torch sees no GPU; without `checker`, only the smoke
    test runs. A package in the folder `site` hides the installed one.
    """
    settings = log.settings
    python = folder / "bin" / "python"
    name = (site or folder).name
    empty = fresh(settings.temporary / "run" / name)
    env = clean_env(settings.project, **emulation.variables(settings))
    env["PATH"] = f"{folder / 'bin'}:{env['PATH']}"
    if site:
        env["PYTHONPATH"] = str(site)
    if not gpu:
        env["CUDA_VISIBLE_DEVICES"] = ""
    if checker:
        # Under qemu an import of torch takes 20 s; with --torch the checker does not import
        # it.
        options = ["--torch", str(folder)] if settings.is_foreign else []
        log.run([python, "-m", settings.project.package, *options], env=env, cwd=empty)
    report = settings.build / "smoke" / f"{name}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [*smoke_test(python, report, settings), "--glue", glue]
    remedy = "the lines in the log that begin with FAILED say what is wrong"
    log.run(command, env=env, cwd=empty, remedy=remedy)
    return report


def smoke_test(python: Path, report: Path, settings: Settings) -> list[str | Path]:
    """The command that tries the installed package, not that of the sources."""
    command: list[str | Path] = [python, settings.smoke, settings.project.package]
    return [*command, "--outside", settings.package, "--json", report]


def venv_of(cell: Cell, settings: Settings) -> Path:
    """The folder of the virtual environment with the cell's thin wheel."""
    return settings.envs / f"{cell.name}-venv"


# The facts of a smoke test's report that the manifest keeps, besides the project's version.
FACTS = (
    "torch",
    "python",
    "devices",
    "variant",
    "binaries",
    "openmp",
    "gradcheck",
    "pytorch",
)


class Installed(NamedTuple):
    """Where a package was installed, and the report of its smoke test."""

    folder: Path
    report: Path


class RunStep(CellStep[Made]):
    """A step that runs a package, and says in the manifest of the cell what the run found."""

    #: What the manifest calls the run: `venv`, `fat` or `conda`.
    run_kind: ClassVar[str]

    def part_without(self, reason: str) -> Part:
        return Part(runs=(Run(kind=self.run_kind, ran=False, why_not=reason),))

    def part_of_report(self, path: Path, settings: Settings) -> Part:
        """What the manifest says of a smoke test's report."""
        report = json.loads(path.read_text(encoding="utf-8"))
        names = (settings.project.distribution, *FACTS)
        facts = {name: report[name] for name in names if name in report}
        facts["comparisons"] = len(report["comparisons"])
        facts["failed"] = report["failed"]
        return Part(runs=(Run(kind=self.run_kind, ran=True, facts=facts),))


@dataclass(frozen=True, eq=False, kw_only=True)
class InstallWheel(RunStep[Installed]):
    """Makes a virtual environment with the wheel and the torch of `env`; runs the wheel there.

    The step installs from the cache of `env`, if `env` has one, so it runs before
    `torch_env`'s outputs are deleted.
    """

    kind = "venv"
    run_kind = "venv"
    cell: Cell
    wheel: Task[Path]
    env: TorchEnv
    torch_env: Task[Path]

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "InstallWheel":
        env = TorchEnv.of(cell, plan)
        step = cls(
            name=f"{cls.kind}/{cell}",
            cell=cell,
            wheel=PackWheel.plan(cell, plan),
            env=env,
            torch_env=MakeTorchEnv.plan(cell, plan),
            inputs=(plan.settings.smoke,),
            temporary=(venv_of(cell, plan.settings),) if env.cache else (),
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.wheel, self.torch_env)

    def made(self, paths: Sequence[Path]) -> Installed:
        return Installed(*paths)

    def part(self, made: Installed, settings: Settings) -> Part:
        return self.part_of_report(made.report, settings)

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        extras = "" if settings.is_foreign else "[examples]"
        wheel = context.output(self.wheel).as_uri()
        requirements = [
            f"{settings.project.distribution}{extras} @ {wheel}",
            "numpy",
            f"torch=={self.env.release}",
        ]
        folder = venv_of(self.cell, settings)
        make_venv(context.log, folder, self.env, requirements)
        gpu = self.cell.cuda_major is not None
        return [folder, run_installed(context.log, folder, self.cell.glue, gpu=gpu)]


@dataclass(frozen=True, eq=False, kw_only=True)
class RunExample(CellStep[Path], FileTask):
    """Runs the project's example in the virtual environment.

    Raises CommandFailed if the example fails.
    """

    kind = "example"
    example: Path
    cell: Cell
    venv: Task[Installed]

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "RunExample | None":
        example = plan.settings.example
        if example is None:
            plan.leave_out(cls.kind, cell, "the project has no example")
            return None
        if reason := _why_no_example(cell, plan):
            plan.leave_out(cls.kind, cell, reason)
            return None
        # What the example may read begins with its name.
        files = f"{example.relative_to(plan.settings.repo).parent}/{example.stem}*.py"
        step = cls(
            name=f"{cls.kind}/{cell}",
            example=example,
            cell=cell,
            venv=InstallWheel.plan(cell, plan),
            inputs=sources(plan.settings.repo, files),
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.venv,)

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        out = fresh(settings.build / self.example.stem / self.cell.name)
        python = context.output(self.venv).folder / "bin" / "python"
        command: list[str | Path] = [python, self.example, "--out", out]
        env = clean_env(settings.project, **emulation.variables(settings))
        context.log.run(command, env=env, cwd=out, remedy=settings.matrix.project.example_needs)
        return [out]


def _why_no_example(cell: Cell, plan: Plan) -> str:
    """Why the example does not run for a cell; "" if it does.

    Without a GPU, a CUDA cell trains like its CPU twin, so it leaves the example to that twin; code
    for CUDA alone trains nothing.
    """
    if plan.settings.is_foreign:
        return emulation.SLOW
    if cell.cuda_major is None or plan.host.driver:
        return ""
    if plan.settings.project.is_for_cuda_alone:
        return "there is no GPU"
    twins = [c for c in plan.cells if c.glue == cell.glue and c.cuda_major is None]
    return f"without a GPU, it is that of {twins[0]}" if twins else ""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFatWheel(RunStep[Path], FileTask):
    """Runs the fat wheel beside the torch of a glue; the loader must choose that glue.

    The step installs the wheel into a folder of its own, which comes first on Python's path.
    """

    kind = "fat-run"
    run_kind = "fat"
    glue: str
    venv: Task[Installed]
    fat_wheel: Task[FatWheel]

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "RunFatWheel | None":
        """One run for each glue, beside its first cell; the plan has JoinWheels before."""
        venv = InstallWheel.plan(cell, plan)
        name = f"{cls.kind}/{cell.glue}"
        # Where it does not run, the runs of the thin wheels try its binaries.
        if venv.temporary:
            reason = "its torch is deleted before the fat wheel is there; `verify` tries it"
        elif plan.settings.is_foreign:
            reason = emulation.SLOW
        elif name in plan.tasks:
            reason = f"{', '.join(plan.tasks[name].cells)} runs it beside the same torch"
        else:
            fat_wheel = plan.tasks[JoinWheels.kind]
            step = cls(
                name=name,
                glue=cell.glue,
                venv=venv,
                fat_wheel=fat_wheel,
                inputs=(plan.settings.smoke,),
            )
            return plan.add(step, cell)
        plan.leave_out(cls.kind, cell, reason)
        return None

    @property
    def reads(self) -> Tasks:
        return (self.venv, self.fat_wheel)

    def part(self, made: Path, settings: Settings) -> Part:
        return self.part_of_report(made, settings)

    def run(self, context: Context) -> Sequence[Path]:
        site = fresh(context.settings.envs / f"{self.glue}-fat")
        venv = context.output(self.venv).folder
        options = ["--no-deps", "--no-index", "--target", str(site)]
        options += ["--python", str(venv / "bin" / "python")]
        fat_wheel = context.output(self.fat_wheel).wheel
        context.log.run([tool("uv"), "pip", "install", *options, fat_wheel])
        return [run_installed(context.log, venv, self.glue, gpu=True, site=site)]
