"""Packs the source distribution, a thin wheel per cell, and a fat wheel that joins thin wheels."""

import gzip
import io
import sys
import tarfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from . import DIST, FOREIGN, PLATFORM, PROJECT, REPO, ReleaseError, of_project
from .audit import ALLOWED, policies
from .cells import Cell
from .paths import TEMPORARY, WHEELS, fresh, publish, replace_wheel, write_atomically
from .shell import Log, clean_env, output_of
from .store import digest, source_env, source_epoch
from .tasks import Context, SkipTask, Status, Task
from .wheels import Wheel, join, read_wheel

# The environment variable that names a folder of compiled binaries for a build to pack.
PREBUILT = PROJECT.variable("PREBUILT")
LIMIT = int(of_project("wheel_limit"))  # the most bytes that the fat wheel may have
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0"></head>
<body>
{}
</body>
</html>
"""


def package_sources() -> tuple[Path, ...]:
    """The files that a distribution may hold: git's, or without git, all but build products."""
    listed = output_of("git", "ls-files", "-co", "--exclude-standard", "-z")
    names = [name for name in (listed or "").split("\0") if name]
    if listed is None:
        skipped = {"build", "dist", ".venv", "__pycache__", "lib"}
        found = (path.relative_to(REPO) for path in REPO.rglob("*"))
        names = [str(path) for path in found if not skipped & set(path.parts)]
    left_out = {"tests", "docs", "scripts", "benchmarks", "measurements", "recipe", "requirements"}
    tops = [(name.partition("/")[0], name) for name in sorted(names)]
    wanted = [REPO / name for top, name in tops if top not in left_out and top[0] != "."]
    return tuple(path for path in wanted if path.is_file())


def sdist(context: Context) -> Sequence[Path]:
    """Makes the source distribution in a copy of the sources, since the build adds files there."""
    stage = fresh(TEMPORARY / "sdist" / "source")
    for path in package_sources():
        target = stage / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    out = fresh(TEMPORARY / "sdist" / "out")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, stage]
    context.log.run(command, env=clean_env(**source_env()))
    (made,) = out.glob("*.tar.gz")
    final = repack(made, fresh(TEMPORARY / "sdist" / "final"), source_epoch())
    return [publish(final, DIST / final.name)]


def repack(archive: Path, folder: Path, epoch: int) -> Path:
    """Packs an archive anew with sorted entries and the date `epoch`, for reproducible builds."""
    final = folder / archive.name
    with (
        tarfile.open(archive) as old,
        final.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.type, entry.linkname = member.size, member.type, member.linkname
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            entry.mtime = epoch
            new.addfile(entry, old.extractfile(member))
    return final


def gather(binaries: Iterable[Path], folder: Path) -> Path:
    """Copies binaries into the new `folder`, for a build that finds the folder by PREBUILT."""
    fresh(folder)
    for path in binaries:
        publish(path, folder / path.name)
    return folder


def wheel(context: Context, *, cell: Cell, sdist: Path, binaries: Sequence[Path]) -> Sequence[Path]:
    """Packs the thin wheel of one cell, with its true platform tag, into the index's folder."""
    work = TEMPORARY / "wheel" / cell.name
    prebuilt = gather(binaries, work / "prebuilt")
    with tarfile.open(sdist) as archive:
        archive.extractall(fresh(work / "source"), filter="data")
    (source,) = (work / "source").iterdir()
    out = fresh(work / "out")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    env = clean_env(**{PREBUILT: str(prebuilt)}, **source_env())
    # Without this variable the wheel's tag would name the platform of this machine.
    env |= {"_PYTHON_HOST_PLATFORM": PLATFORM} if FOREIGN else {}
    context.log.run(command, env=env)
    (made,) = out.glob("*.whl")
    packed = read_wheel(made)
    check_binaries(packed, {path.name: path.read_bytes() for path in binaries})
    final = packed.renamed(local=cell.local_version, tag=true_tag(packed))
    return [replace_wheel(final.write(fresh(work / "final")), WHEELS)]


def fat_wheel(
    context: Context,
    *,
    wheels: Mapping[str, Sequence[Task]],
    required: Collection[str],
    carried: Mapping[str, Path],
) -> Sequence[Path]:
    """Joins the thin wheels of this run's cells and the `carried` wheels of an earlier run.

    For each cell, `wheels` holds the task that packed its wheel, then the tasks that ran the wheel.
    The step leaves out wheels that failed in a run, and carried wheels that `agreeing` leaves out.
    """
    found = {}
    for cell, tasks in wheels.items():
        packed, *runs = (context.outcomes[task.name] for task in tasks)
        if packed.outputs and all(run.status is not Status.FAILED for run in runs):
            found[cell] = packed.outputs[0]
    found |= agreeing(carried, found.values())
    if not found:
        raise SkipTask("no variant has a wheel without failures, so the fat wheel would be empty")
    return [replace_wheel(make_fat_wheel(context.log, found, required), DIST, any_version=True)]


def agreeing(carried: Mapping[str, Path], wheels: Iterable[Path]) -> dict[str, Path]:
    """The carried wheels, except those that hold another build of a binary in `wheels`."""
    now = {n: data for path in wheels for n, data in read_wheel(path).binaries.items()}
    return {
        cell: path
        for cell, path in carried.items()
        if all(now.get(n, data) == data for n, data in read_wheel(path).binaries.items())
    }


def make_fat_wheel(log: Log, wheels: Mapping[str, Path], required: Collection[str]) -> Path:
    """Writes the joined wheel with its true tag; raises ReleaseError if the wheel exceeds LIMIT."""
    local = partial_version(wheels, required)
    joined = join(dict(sorted(wheels.items())), local=local)
    for name, data in joined.binaries.items():
        log.write(f"{name}: {len(data)} bytes")
    tagged = joined.renamed(local=local, tag=true_tag(joined))
    final = tagged.write(fresh(TEMPORARY / "fat-wheel"))
    if final.stat().st_size > LIMIT:
        text = f"{final.name}: {final.stat().st_size} bytes, at most {LIMIT} are allowed"
        raise ReleaseError(f"{text}; build for fewer architectures, or see in the log what grew")
    return final


def partial_version(packed: Collection[str], required: Collection[str]) -> str | None:
    """The local version of a wheel: `partial.3of15` for 3 of 15 required cells, None for all 15."""
    count = len({*packed} & {*required})
    return None if count == len(required) else f"partial.{count}of{len(required)}"


def true_tag(wheel: Wheel) -> str:
    """The wheel's tag with the oldest manylinux platform that auditwheel's policies allow.

    Raises ReleaseError if the policies allow none, or if a binary needs a library outside ALLOWED.
    """
    from auditwheel.elfutils import elf_find_versioned_symbols
    from elftools.elf.elffile import ELFFile

    symbols: dict[str, set[str]] = defaultdict(set)
    for name, data in wheel.binaries.items():
        elf = ELFFile(io.BytesIO(data))
        needed = elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        if other := [tag.needed for tag in needed if not ALLOWED.fullmatch(tag.needed)]:
            raise ReleaseError(f"{name}: needs {other[0]}, which is outside the allowed libraries")
        for library, version in elf_find_versioned_symbols(elf):
            symbols[library].add(version)
    policy = policies().versioned_symbols_policy(symbols)
    if policy.name.startswith("linux"):
        text = f"{wheel.name} {wheel.version}: its binaries need newer system libraries than any"
        raise ReleaseError(f"{text} manylinux tag allows; build in a manylinux image")
    return f"py3-none-{'.'.join(sorted([policy.name, *policy.aliases]))}"


def check_binaries(wheel: Wheel, given: Mapping[str, bytes]) -> None:
    """Checks that the wheel holds the given binaries (contents by file name) and no others."""
    wanted = {f"{PROJECT.package}/lib/{name}": data for name, data in given.items()}
    found = wheel.binaries
    if wrong := sorted(n for n in {*wanted, *found} if wanted.get(n) != found.get(n)):
        text = f"{wheel.name} {wheel.version}: {wrong[0]} is missing, was changed or was added"
        raise ReleaseError(f"{text} when the wheel was packed; build it again")


def write_index(root: Path) -> None:
    """Writes the index page of `root`, and the page of each project's folder in `root`."""
    root.mkdir(parents=True, exist_ok=True)
    projects = sorted(path for path in root.iterdir() if path.is_dir())
    _page(root, ((project.name, f"{project.name}/") for project in projects))
    for project in projects:
        wheels = sorted(project.glob("*.whl"))
        _page(project, ((w.name, f"{quote(w.name)}#sha256={digest(w)}") for w in wheels))


def _page(folder: Path, links: Iterable[tuple[str, str]]) -> None:
    lines = (f'<a href="{target}">{name}</a><br>' for name, target in links)
    write_atomically(folder / "index.html", PAGE.format("\n".join(lines)))
