"""Installs the packed wheels into new environments and runs the wheels there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...matrix.cells import Cell
from ...matrix.settings import Settings
from ...paths import fresh, tool
from ...run.shell import Log, clean_env
from ...run.tasks import Context, Task
from ..compile import emulation
from ..compile.environments import TorchEnv, make_venv


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


@dataclass(frozen=True, eq=False, kw_only=True)
class InstallWheel(Task):
    """Makes a virtual environment with the wheel and the torch of `env`; runs the wheel there.

    The outputs are the environment's folder and the smoke test's report. The step installs
    from the cache of `env`, if `env` has one, so it runs before `torch_env`'s outputs are
    deleted.
    """

    cell: Cell
    wheel: Task
    env: TorchEnv
    torch_env: Task

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
class RunExample(Task):
    """Runs the example in the virtual environment.

    Raises CommandFailed if the example fails.
    """

    example: Path
    cell: Cell
    venv: Task

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        out = fresh(settings.build / self.example.stem / self.cell.name)
        python = context.output(self.venv) / "bin" / "python"
        command: list[str | Path] = [python, self.example, "--out", out]
        context.log.run(command, cwd=out, remedy=settings.matrix.project.example_needs)
        return [out]


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFatWheel(Task):
    """Runs the fat wheel beside the torch of a glue; the loader must choose that glue.

    The step installs the wheel into a folder of its own, which comes first on Python's path.
    """

    glue: str
    venv: Task
    fat_wheel: Task

    def run(self, context: Context) -> Sequence[Path]:
        site = fresh(context.settings.envs / f"{self.glue}-fat")
        venv = context.output(self.venv)
        options = ["--no-deps", "--no-index", "--target", str(site)]
        options += ["--python", str(venv / "bin" / "python")]
        fat_wheel = context.output(self.fat_wheel)
        context.log.run([tool("uv"), "pip", "install", *options, fat_wheel])
        return [run_installed(context.log, venv, self.glue, gpu=True, site=site)]
