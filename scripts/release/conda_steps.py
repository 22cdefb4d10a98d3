"""The conda side: base channel, package, index, installation into a fresh prefix."""

from __future__ import annotations

import shutil
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from release import BUILD, REPO, ReleaseError
from release.cells import Cell
from release.pack_steps import gather
from release.paths import BOOTSTRAP, CACHE, CHANNEL, ENVS, TEMPORARY, fresh
from release.provenance import source_env
from release.schema import Matrix
from release.shell import Log, clean_env
from release.store import write_atomically
from release.tasks import Context, SkipTask
from release.variants import render

CONDA_FORGE = "https://conda.anaconda.org/conda-forge"
BOOTSTRAP_WHEELS = ("setuptools", "pip", "ninja", "numpy")


def conda_forge_in_reach(timeout: float = 5.0) -> bool:
    request = urllib.request.Request(f"{CONDA_FORGE}/noarch/repodata.json.zst", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status == 200
    except OSError:
        return False


def _env(**extra: str) -> dict[str, str]:
    cache = str(CACHE / "rattler")
    return clean_env(PYTHONPATH=str(REPO / "scripts"), RATTLER_CACHE_DIR=cache, **extra)


def _worker(log: Log, *words: str | Path, **extra: str) -> None:
    log.run([sys.executable, "-m", "release.conda_worker", *words], env=_env(**extra))


def download(context: Context, *, release: str) -> Sequence[Path]:
    """The wheels of torch and of what it needs, for the bootstrap channel."""
    folder = fresh(BUILD / "wheelhouse")
    # The tool's own interpreter is of the same version as the one that the channel is for.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
    context.log.run(
        [*command, "--dest", folder, f"torch=={release}", *BOOTSTRAP_WHEELS],
        remedy="Is the package index in reach? PIP_INDEX_URL and PIP_FIND_LINKS are honoured",
    )
    return [folder]


def bootstrap(context: Context, *, python: str) -> Sequence[Path]:
    """The base channel for tests, from PyPI's wheels and this host's Python and compilers."""
    command = [sys.executable, "-m", "release.bootstrap", "--out", fresh(BOOTSTRAP)]
    wheels = context.only("wheelhouse")
    context.log.run([*command, "--wheels", wheels, "--python", python], env=_env())
    shutil.rmtree(BOOTSTRAP / "bld", ignore_errors=True)
    shutil.rmtree(BOOTSTRAP / "src_cache", ignore_errors=True)
    return sorted(BOOTSTRAP.glob("*/*.conda"))


def package(
    context: Context,
    *,
    cell: Cell,
    matrix: Matrix,
    binaries: tuple[str, ...],
    channel: str,
) -> Sequence[Path]:
    """One conda package out of the cell's binaries, put into dist/channel and indexed."""
    work = TEMPORARY / "conda" / cell.name
    gather(context, binaries, work / "prebuilt")
    variants = work / "variants.yaml"
    write_atomically(variants, render([cell], matrix))
    out = fresh(work / "out")
    words = ["build", "--variants", variants, "--out", out, "--channel", channel]
    _worker(context.log, *words, "--prebuilt", work / "prebuilt", **source_env())
    (made,) = out.glob("linux-64/*.conda")
    _worker(context.log, "index", made, "--into", CHANNEL)
    shutil.rmtree(out)
    return [CHANNEL / "linux-64" / made.name]


def _needs_cuda_pytorch(cell: Cell, channel: str) -> None:
    """Skips what only a channel with CUDA builds of pytorch can do."""
    if cell.cuda_major is not None and channel == BOOTSTRAP.as_uri():
        raise SkipTask(
            "built and indexed, not installed: the bootstrap channel's pytorch is a CPU build; "
            "use --channel conda-forge on a machine with an NVIDIA driver"
        )


def package_tests(context: Context, *, cell: Cell, channel: str) -> Sequence[Path]:
    """The tests inside the package, as any conda tool would run them."""
    _needs_cuda_pytorch(cell, channel)
    made = context.only(f"conda/{cell.name}")
    _worker(context.log, "test", made, "--channel", CHANNEL.as_uri(), "--channel", channel)
    return []


def prefix(context: Context, *, cell: Cell, channel: str, python: str) -> Sequence[Path]:
    """A new conda prefix with `lltm` from the channel, in which it is run."""
    _needs_cuda_pytorch(cell, channel)
    made = context.only(f"conda/{cell.name}")
    folder = ENVS / f"{cell.name}-conda"
    _, version, build = made.name.removesuffix(".conda").rsplit("-", 2)
    specs = [f"lltm =={version} {build}", f"python {python}.*"]
    channels = ["--channel", CHANNEL.as_uri(), "--channel", channel]
    _worker(context.log, "install", "--prefix", folder, *channels, *specs)
    from release.verify_steps import run_installed

    run_installed(context.log, folder / "bin" / "python", folder, f"{cell.name}-conda")
    if not any(folder.glob(f"conda-meta/lltm-{version}-*.json")):
        raise ReleaseError(f"{folder}: conda-meta knows no lltm {version}; see the log")
    return [folder]
