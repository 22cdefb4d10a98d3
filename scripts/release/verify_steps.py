"""Installs the packed wheels into new environments and runs the wheels there."""

from collections.abc import Sequence
from pathlib import Path

from release import BUILD, EXAMPLE, FOREIGN, PACKAGE, PROJECT, SMOKE, emulation, of_project
from release.cells import Cell
from release.environments import TorchEnv, make_venv
from release.paths import ENVS, TEMPORARY, fresh, tool
from release.shell import Log, clean_env
from release.tasks import Context


def run_installed(
    log: Log,
    python: Path,
    folder: Path,
    name: str,
    *,
    site: Path | None = None,
    glue: str | None = None,
    gpu: bool = True,
    checker: bool = True,
) -> Path:
    """Runs the checker and the smoke test in an environment; returns the smoke test's JSON report.

    Both run in an empty folder, from which Python does not find the source tree. A package in the
    folder `site` hides the installed one; the loader must choose `glue`, if it is given. Without
    `gpu`, torch sees no GPU; without `checker`, only the smoke test runs.
    """
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
    command = smoke_test(python, report) + (["--glue", glue] if glue else [])
    remedy = "the lines in the log that begin with FAILED say what is wrong"
    log.run(command, env=env, cwd=empty, remedy=remedy)
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
    folder, site = folder_of(cell), env.borrowed and env.borrowed.parent
    python = make_venv(context.log, folder, env.python, wanted, cache=env.cache, borrowed=site)
    options = {"glue": cell.glue, "gpu": cell.cuda_major is not None}
    return [folder, run_installed(context.log, python, folder, folder.name, **options)]


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
    python, name = venv / "bin" / "python", f"{glue}-fat"
    site = fresh(ENVS / name)
    command = [tool("uv"), "pip", "install", "--no-deps", "--no-index", "--python", python]
    context.log.run([*command, "--target", site, fat_wheel])
    return [run_installed(context.log, python, venv, name, site=site, glue=glue)]
