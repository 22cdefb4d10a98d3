"""Installs the packed wheels into new environments and runs the wheels there."""

from collections.abc import Sequence
from pathlib import Path

from . import BUILD, EXAMPLE, FOREIGN, PACKAGE, PROJECT, SMOKE, emulation, of_project
from .cells import Cell
from .environments import TorchEnv, make_venv
from .paths import ENVS, TEMPORARY, fresh, tool
from .shell import Log, clean_env
from .tasks import Context


def run_installed(
    log: Log, folder: Path, glue: str, *, gpu: bool, checker: bool, site: Path | None = None
) -> Path:
    """Runs the checker and the smoke test in an environment; returns the smoke test's JSON report.

    Both run in an empty folder, from which Python does not find the source tree. The loader must
    choose `glue`. Without `gpu`, torch sees no GPU; without `checker`, only the smoke test runs. A
    package in the folder `site` hides the installed one.
    """
    python, name = folder / "bin" / "python", (site or folder).name
    empty = fresh(TEMPORARY / "run" / name)
    env = clean_env(PATH=f"{folder / 'bin'}:{clean_env()['PATH']}")
    env |= {"PYTHONPATH": str(site)} if site else {}
    env |= {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    env |= emulation.settings()
    if checker:
        # Under qemu an import of torch takes 20 s; with --torch the checker does not import it.
        words = ["--torch", folder] if FOREIGN else []
        log.run([python, "-m", PROJECT.package, *words], env=env, cwd=empty)
    report = BUILD / "smoke" / f"{name}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    remedy = "the lines in the log that begin with FAILED say what is wrong"
    log.run([*smoke_test(python, report), "--glue", glue], env=env, cwd=empty, remedy=remedy)
    return report


def smoke_test(python: Path, report: Path) -> list[str | Path]:
    """The command that tries the installed package, not that of the sources."""
    return [python, SMOKE, "--outside", PACKAGE, "--json", report]


def folder_of(cell: Cell) -> Path:
    return ENVS / f"{cell.name}-venv"


def venv(context: Context, *, cell: Cell, wheel: Path, env: TorchEnv) -> Sequence[Path]:
    """Makes a virtual environment with the wheel and the torch of `env`; runs the wheel there."""
    extras = "" if FOREIGN else "[examples]"
    wanted = [f"{PROJECT.distribution}{extras} @ {wheel.as_uri()}", "numpy"]
    wanted.append(f"torch=={env.release}")
    folder, gpu = folder_of(cell), cell.cuda_major is not None
    make_venv(context.log, folder, env, wanted)
    return [folder, run_installed(context.log, folder, cell.glue, gpu=gpu, checker=True)]


def example(context: Context, *, cell: Cell, venv: Path) -> Sequence[Path]:
    """Runs the example in the virtual environment; raises CommandFailed if the example fails."""
    out = fresh(BUILD / EXAMPLE.stem / cell.name)
    command = [venv / "bin" / "python", EXAMPLE, "--out", out]
    context.log.run(command, cwd=out, remedy=of_project("example_needs"))
    return [out]


def fat_run(context: Context, *, glue: str, venv: Path, fat_wheel: Path) -> Sequence[Path]:
    """Runs the fat wheel beside the torch of a glue; the loader must choose that glue.

    The step installs the wheel into a folder of its own, which comes first on Python's path.
    """
    site = fresh(ENVS / f"{glue}-fat")
    command = [tool("uv"), "pip", "install", "--no-deps", "--no-index", "--target", site]
    context.log.run([*command, "--python", venv / "bin" / "python", fat_wheel])
    return [run_installed(context.log, venv, glue, gpu=True, checker=True, site=site)]
