"""The conda steps of a run: base channel, package, index, installation into a new prefix."""

import json
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from . import BUILD, FOREIGN, PROJECT, REPO, SUBDIR, ReleaseError, conda_commands
from .cells import Cell, all_cells, for_conda, render, select
from .conda_stubs import link_torch
from .environments import pip
from .pack_steps import PREBUILT, gather
from .paths import BOOTSTRAP, CACHE, CHANNEL, ENVS, TEMPORARY, fresh, write_atomically
from .schema import Matrix
from .shell import Log, clean_env
from .store import commit, source_env
from .tasks import Context, SkipTask
from .verify_steps import run_installed

CONDA_FORGE = "https://conda.anaconda.org/conda-forge"
PATHS = f"{REPO / 'scripts'}:{REPO}"
# Only one task at a time may index, since indexing reads and writes the whole channel.
_INDEX = threading.Lock()


def conda_forge_in_reach() -> bool:
    request = urllib.request.Request(f"{CONDA_FORGE}/noarch/repodata.json.zst", method="HEAD")
    with suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:
        return answer.status == 200
    return False


def _work(log: Log, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Runs a command line of `conda_commands`, with these environment variables."""
    cache = {"RATTLER_CACHE_DIR": str(CACHE / "rattler")}
    log.run(command, env=clean_env(PYTHONPATH=PATHS, **cache, **(variables or {})))


def download(context: Context, *, release: str | None) -> Sequence[Path]:
    """Downloads the wheels of the bootstrap channel with their requirements; returns their folder.

    `release` is torch's; it is None in a run for another platform, which links an installed torch.
    """
    folder = fresh(BUILD / "wheelhouse")
    # pip takes wheels for the tool's Python; in a run for another platform, all are pure Python.
    words = ["download", "--quiet", "--only-binary", ":all:", "--dest", folder]
    # The tool's own setuptools, because packages tell its version.
    words += [f"setuptools=={version('setuptools')}", "pip"]
    words += [f"torch=={release}", "ninja", "numpy"] if release else []
    pip(context.log, words)
    return [folder]


def bootstrap(context: Context, *, wheels: Path, python: str) -> Sequence[Path]:
    command = conda_commands.bootstrap(fresh(BOOTSTRAP), wheels=wheels, python=python)
    _work(context.log, command)
    return sorted(BOOTSTRAP.glob("*/*.conda"))


def package(
    context: Context, *, cell: Cell, variants: str, binaries: Sequence[Path], channel: str
) -> Sequence[Path]:
    """Builds a conda package with the cell's binaries, and indexes it in `dist/channel`.

    `variants` is the text of a variants file for this cell alone.
    """
    work = TEMPORARY / "conda" / cell.name
    file, out = work / "variants.yaml", fresh(work / "out")
    write_atomically(file, variants)
    env = {PREBUILT: str(gather(binaries, work / "prebuilt")), **source_env()}
    _work(context.log, conda_commands.build(file, out, channels=[channel]), env)
    (made,) = out.glob(f"{SUBDIR}/*.conda")
    index_package(context.log, made, CHANNEL)
    shutil.rmtree(out)
    return [CHANNEL / SUBDIR / made.name]


def index_package(log: Log, package: Path, channel: Path) -> None:
    with _INDEX:
        _work(log, conda_commands.index(channel, [package]))


def link(context: Context, *, env: Path, folder: Path, python: str) -> Sequence[Path]:
    link_torch(fresh(folder), env, python)
    for path in sorted(folder.glob(f"{SUBDIR}/*.tar.bz2")):
        context.log.write(path.name)
    return [folder]


def no_torch(_: Context, *, cuda_major: int | None, python: str) -> Sequence[Path]:
    raise SkipTask(
        f"PyPI has no torch with CUDA {cuda_major} that the stable glue serves on Python {python}; "
        "set PYTHON to another Python, or --channel to a channel with a pytorch"
    )


def build_recipe(selector: str, matrix: Matrix, channel: str | None, console: Console) -> None:
    """Builds and tests packages from source by `conda build`, or without it by py-rattler-build."""
    base, conda = channel or BOOTSTRAP.as_uri(), shutil.which("conda")
    if conda and subprocess.run([conda, "build", "--version"], capture_output=True).returncode:
        conda = None
    for cell in select([cell for cell in all_cells(matrix) if for_conda(cell)], [selector]):
        out = fresh(BUILD / "recipe" / cell.name)
        file = out / "variants.yaml"
        write_atomically(file, render([cell], matrix))
        command = conda_commands.build(file, out, channels=[base], run_tests=True)
        if conda:
            words = ["-m", file, "-c", base, "--override-channels", "--output-folder", out]
            command = [conda, "build", "recipe", *words]
        console.print(cell.name, *command, markup=False, soft_wrap=True)
        env = clean_env(PYTHONPATH=PATHS, **{PROJECT.variable("GIT_COMMIT"): commit()})
        if subprocess.run(command, cwd=REPO, env=env | driver(cell)).returncode:
            raise ReleaseError(f"{cell.name}: not built beside {base}; the lines above say why")


def package_tests(
    context: Context,
    *,
    cell: Cell,
    package: Path,
    binaries: Sequence[Path],
    channels: Sequence[str],
) -> Sequence[Path]:
    """Checks the content of the package, and runs the tests that the package holds.

    A package for another platform only has its content checked, as its tests cannot run here.
    """
    _work(context.log, conda_commands.contents(package, binaries))
    if not FOREIGN:
        command = conda_commands.test(package, channels=[CHANNEL.as_uri(), *channels])
        _work(context.log, command, driver(cell))
    return []


def driver(cell: Cell) -> dict[str, str]:
    """The variable that tells the solver which driver to assume; none if the solver detects it.

    A CPU package is tried beside a CPU pytorch, without a driver. For a CUDA package, the solver
    assumes a driver where there is none; the package then computes on the CPU.
    """
    if cell.cuda_major is None:
        return {"CONDA_OVERRIDE_CUDA": ""}
    if Path("/proc/driver/nvidia/version").exists():
        return {}
    return {"CONDA_OVERRIDE_CUDA": f"{cell.cuda_major}.0"}


def prefix(
    context: Context, *, cell: Cell, package: Path, channels: Sequence[str], python: str
) -> Sequence[Path]:
    """Installs the package into a new conda prefix and runs the package there.

    The last output is the smoke test's report, with the name of the `pytorch` package.
    """
    _, version, build = package.name.removesuffix(".conda").rsplit("-", 2)
    specs = [f"{PROJECT.distribution} =={version} {build}", f"python {python}.*"]
    folder, gpu = ENVS / f"{cell.name}-conda", cell.cuda_major is not None
    command = conda_commands.install(folder, specs, channels=[CHANNEL.as_uri(), *channels])
    _work(context.log, command, driver(cell))
    # Under qemu the checker is slow; the run of the wheel has tested it, so this run leaves it out.
    report = run_installed(context.log, folder, cell.glue, gpu=gpu, checker=not FOREIGN)
    (pytorch,) = (path.stem for path in folder.glob("conda-meta/pytorch-*.json"))
    facts = json.loads(report.read_text(encoding="utf-8"))
    write_atomically(report, json.dumps({**facts, "pytorch": pytorch}, indent=1))
    # Deletes a prefix that links a torch, which the tool will delete, or whose CUDA lacks a driver.
    if "linked" in pytorch or (gpu and driver(cell)):
        shutil.rmtree(folder)
        return [report]
    return [folder, report]
