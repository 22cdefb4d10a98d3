"""The conda side: base channel, package, index, installation into a fresh prefix."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lltm_conda.compat.binary import read_binary
from release import BUILD, REPO, ReleaseError, downloads
from release.cells import Cell
from release.conda_linked import write_channel as write_linked
from release.conda_stubs import write_channel
from release.environments import REMEDY
from release.pack_steps import gather
from release.paths import BOOTSTRAP, CACHE, CHANNEL, ENVS, TEMPORARY, fresh
from release.provenance import source_env
from release.schema import Matrix
from release.shell import Log, clean_env
from release.store import write_atomically
from release.tasks import Context
from release.variants import render

CONDA_FORGE = "https://conda.anaconda.org/conda-forge"
# Indexing reads and writes the whole channel.
_INDEX = threading.Lock()
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
    words = ["download", "--quiet", "--only-binary", ":all:", "--dest", folder]
    downloads.pip(context.log, [*words, f"torch=={release}", *BOOTSTRAP_WHEELS], remedy=REMEDY)
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
    given = gather(context, binaries, work / "prebuilt")
    variants = work / "variants.yaml"
    write_atomically(variants, render([cell], matrix))
    out = fresh(work / "out")
    words = ["build", "--variants", variants, "--out", out, "--channel", channel]
    words += ["--prebuilt", work / "prebuilt"]
    _worker(context.log, *words, LLTM_CONDA_GLIBC=glibc_of(given), **source_env())
    (made,) = out.glob("linux-64/*.conda")
    index_package(context.log, made, CHANNEL)
    shutil.rmtree(out)
    return [CHANNEL / "linux-64" / made.name]


def index_package(log: Log, package: Path, channel: Path) -> None:
    """Puts a package into a channel on disk and indexes it."""
    with _INDEX:
        _worker(log, "index", package, "--into", channel)


def glibc_of(binaries: Sequence[Path]) -> str:
    """The oldest glibc on which all of them load, `2.34`."""
    floors = [read_binary(path).floors.get("GLIBC", (2, 28)) for path in binaries]
    return ".".join(map(str, max(floors)))


def _specs(made: Path) -> list[str]:
    _, version, build = made.name.removesuffix(".conda").rsplit("-", 2)
    return [f"lltm =={version} {build}"]


def _ask(log: Log, specs: list[str], channels: list[str], driver: str) -> dict[str, Any]:
    """What a solver says: `packages`, or the `reason` why there are none."""
    answer = TEMPORARY / "solve" / f"{log.path.parent.name}-{log.path.stem}.json"
    answer.parent.mkdir(parents=True, exist_ok=True)
    words: list[str | Path] = ["solve", "--answer", answer, "--driver", driver]
    for channel in channels:
        words += ["--channel", channel]
    _worker(log, *words, *specs)
    return json.loads(answer.read_text(encoding="utf-8"))


def link(context: Context, *, env: str, folder: Path, python: str) -> Sequence[Path]:
    """The channel with the torch of the environment that the task `env` made."""
    write_linked(fresh(folder), context.only(env), python)
    for path in sorted(folder.glob("linux-64/*.tar.bz2")):
        context.log.write(path.name)
    return [folder]


def not_installable(log: Log, cell: Cell, made: Path, channels: Sequence[str]) -> str:
    """Why the base channels cannot serve this package, "" where they can.

    Only the bootstrap channel may lack a pytorch: it has what PyPI gave.
    """
    if BOOTSTRAP.as_uri() not in channels:
        return ""
    driver = f"{cell.cuda_major}.0" if cell.cuda_major else ""
    answer = _ask(log, _specs(made), [CHANNEL.as_uri(), *channels], driver)
    if not answer["reason"]:
        return ""
    folders = [Path(channel.removeprefix("file://")) for channel in channels]
    has = sorted(path.name for f in folders for path in f.glob("linux-64/pytorch-*"))
    return f"the bootstrap channel has no pytorch for it (it has {', '.join(has)})"


def package_tests(
    context: Context, *, cell: Cell, binaries: tuple[str, ...], channels: tuple[str, ...]
) -> Sequence[Path]:
    """What is in the package, and the tests inside it, as any conda tool would run them."""
    made = context.only(f"conda/{cell.name}")
    given = [path for name in binaries for path in context.made[name]]
    _worker(context.log, "contents", made, *given)
    if why := not_installable(context.log, cell, made, channels):
        context.log.write(f"the tests inside the package were not run: {why}")
    else:
        _worker(context.log, "test", made, *_options(channels), **_driver(cell))
    return []


def _options(channels: Sequence[str]) -> list[str]:
    return [word for url in (CHANNEL.as_uri(), *channels) for word in ("--channel", url)]


def _driver(cell: Cell) -> dict[str, str]:
    """Lets a CUDA package be installed where there is no GPU; it computes on the CPU there."""
    if cell.cuda_major is None or Path("/proc/driver/nvidia/version").exists():
        return {}
    return {"CONDA_OVERRIDE_CUDA": f"{cell.cuda_major}.0"}


def prefix(
    context: Context, *, cell: Cell, matrix: Matrix, channels: tuple[str, ...], python: str
) -> Sequence[Path]:
    """A new conda prefix with `lltm` from the channel, in which it is run.

    Where no bootstrap channel has a pytorch for it, it is solved against stubs of conda-forge
    instead, and the note that is made says that it was not run.
    """
    made = context.only(f"conda/{cell.name}")
    specs = [*_specs(made), f"python {python}.*"]
    note: dict[str, Any] = {"package": made.name, "installed": True, "why": ""}
    if why := not_installable(context.log, cell, made, channels):
        stubs = write_channel(fresh(TEMPORARY / "stubs" / cell.name), matrix)
        driver = f"{cell.cuda_major}.0" if cell.cuda_major else ""
        answer = _ask(context.log, specs, [CHANNEL.as_uri(), stubs.as_uri()], driver)
        if answer["reason"]:
            raise ReleaseError(f"{made.name}: {answer['reason']}")
        note |= {"installed": False, "why": f"solved, not installed: {why}"}
        note["packages"] = sorted(answer["packages"].values())
        return [_note(cell, note)]
    folder = ENVS / f"{cell.name}-conda"
    _worker(
        context.log, "install", "--prefix", folder, *_options(channels), *specs, **_driver(cell)
    )
    from release.verify_steps import run_installed

    run_installed(
        context.log,
        folder / "bin" / "python",
        folder,
        f"{cell.name}-conda",
        glue=cell.glue,
        gpu=cell.cuda_major is not None,
    )
    version = specs[0].split()[1].removeprefix("==")
    if not any(folder.glob(f"conda-meta/lltm-{version}-*.json")):
        raise ReleaseError(f"{folder}: conda-meta knows no lltm {version}; see the log")
    note["packages"] = sorted(path.stem for path in folder.glob("conda-meta/*.json"))
    (note["pytorch"],) = (name for name in note["packages"] if name.startswith("pytorch-"))
    if "linked" in note["pytorch"] or _driver(cell):  # nothing works in it once its torch is gone
        shutil.rmtree(folder)
        return [_note(cell, note)]
    return [folder, _note(cell, note)]


def _note(cell: Cell, note: dict[str, Any]) -> Path:
    """What was done with the package here, for the manifest."""
    path = BUILD / "conda" / f"{cell.name}.json"
    write_atomically(path, json.dumps(note, indent=1))
    return path
