"""Packs the source distribution, the thin wheels, and the fat wheel with every binary once."""

import gzip
import sys
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from release import DIST, FOREIGN, PLATFORM, PROJECT, REPO, ReleaseError, of_project
from release.cells import Cell
from release.paths import TEMPORARY, WHEELS, fresh, publish, replace_wheel, tool, write_atomically
from release.shell import Log, clean_env, output_of
from release.store import digest, source_env, source_epoch
from release.tasks import Context, SkipTask, Status, Task
from release.wheels import Wheel, join, read_wheel

# The variable that names a folder of binaries, which a build packs instead of compiling.
PREBUILT = PROJECT.variable("PREBUILT")
LIMIT = int(of_project("wheel_limit"))  # bytes of the fat wheel
EXCLUDED = ("libtorch*", "libc10*", "libcudart*", "libcuda.so*", "libnv*", "libgomp*")
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
    """The files that a distribution may hold (MANIFEST.in chooses); no tests, no tools.

    They are files that git tracks or would track; without git, all files but build products.
    """
    listed = output_of("git", "ls-files", "-co", "--exclude-standard", "-z")
    names = [name for name in (listed or "").split("\0") if name]
    if listed is None:
        skipped = {"build", "dist", ".venv", "__pycache__", "lib"}
        found = (path.relative_to(REPO) for path in REPO.rglob("*"))
        names = [str(path) for path in found if not skipped & set(path.parts)]
    left_out = {"tests", "docs", "scripts", "benchmarks", "recipe", "requirements"}
    tops = [(name.partition("/")[0], name) for name in sorted(names)]
    wanted = [REPO / name for top, name in tops if top not in left_out and top[0] != "."]
    return tuple(path for path in wanted if path.is_file())


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
    final = repack(made, fresh(TEMPORARY / "sdist" / "final"), source_epoch())
    return [publish(final, DIST / final.name)]


def repack(archive: Path, folder: Path, epoch: int) -> Path:
    """The same files in an archive whose bytes depend only on them and `epoch`."""
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
    """Copies binaries into a new folder; PREBUILT passes its name to a build."""
    fresh(folder)
    for path in binaries:
        publish(path, folder / path.name)
    return folder


def wheel(context: Context, *, cell: Cell, sdist: Path, binaries: Sequence[Path]) -> Sequence[Path]:
    """The thin wheel of one cell, with its true platform tag, in the folder of the index."""
    work = TEMPORARY / "wheel" / cell.name
    prebuilt = gather(binaries, work / "prebuilt")
    given = {path.name: path.read_bytes() for path in binaries}
    with tarfile.open(sdist) as archive:
        archive.extractall(fresh(work / "source"), filter="data")
    (source,) = (work / "source").iterdir()
    out = fresh(work / "out")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    env = clean_env(**{PREBUILT: str(prebuilt)}, **source_env())
    # Without this variable the wheel's tag would name this machine's platform.
    env |= {"_PYTHON_HOST_PLATFORM": PLATFORM} if FOREIGN else {}
    context.log.run(command, env=env)
    (made,) = out.glob("*.whl")
    tagged = true_tag(context.log, made, given, fresh(work / "repaired"))
    final = tagged.renamed(local=cell.local_version).write(fresh(work / "final"))
    return [replace_wheel(final, WHEELS)]


def fat_wheel(
    context: Context,
    *,
    wheels: Mapping[str, Sequence[Task]],
    required: Collection[str],
    carried: Mapping[str, Path],
) -> Sequence[Path]:
    """Joins the thin wheels of this run's cells, and those of cells that an earlier run built.

    For each cell, `wheels` names the task that packed it, then the tasks that ran it. A cell is
    left out if its wheel was not packed or a run failed.
    """
    found = {
        cell: context.outcomes[packed.name].outputs[0]
        for cell, (packed, *runs) in wheels.items()
        if context.outcomes[packed.name].outputs
        and all(context.outcomes[run.name].status is not Status.FAILED for run in runs)
    }
    found |= agreeing(carried, found.values())
    if not found:
        raise SkipTask("no variant was built, so there is nothing to pack")
    return [replace_wheel(make_fat_wheel(context.log, found, required), DIST, any_version=True)]


def agreeing(carried: Mapping[str, Path], wheels: Iterable[Path]) -> dict[str, Path]:
    """The carried wheels, except those with a binary whose bytes differ from this run's."""
    now = {n: data for path in wheels for n, data in read_wheel(path).binaries.items()}
    return {
        cell: path
        for cell, path in carried.items()
        if all(now.get(n, data) == data for n, data in read_wheel(path).binaries.items())
    }


def make_fat_wheel(log: Log, wheels: Mapping[str, Path], required: Collection[str]) -> Path:
    """The joined wheel in a temporary folder, with its true tag, and within the size limit."""
    work = fresh(TEMPORARY / "fat-wheel")
    joined = join(dict(sorted(wheels.items())), local=partial_version(wheels, required))
    for name, data in joined.binaries.items():
        log.write(f"{name}: {len(data)} bytes")
    given = {Path(name).name: data for name, data in joined.binaries.items()}
    made = joined.write(fresh(work / "joined"))
    tagged = true_tag(log, made, given, fresh(work / "repaired"))
    final = tagged.write(fresh(work / "final"))
    if final.stat().st_size > LIMIT:
        text = f"{final.name}: {final.stat().st_size} bytes, at most {LIMIT} are allowed"
        raise ReleaseError(f"{text}; build for fewer architectures, or find what grew in the log")
    return final


def partial_version(packed: Collection[str], required: Collection[str]) -> str | None:
    """The local version of a wheel that lacks required cells, `partial.3of15`; else None."""
    count = len({*packed} & {*required})
    return None if count == len(required) else f"partial.{count}of{len(required)}"


def true_tag(log: Log, made: Path, given: Mapping[str, bytes], folder: Path) -> Wheel:
    """The wheel `made` with the oldest manylinux tag that auditwheel allows.

    `given` holds the binaries in the wheel by name; `folder` is an empty folder for auditwheel.
    """
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, made]
    for name in EXCLUDED:
        command += ["--exclude", name]
    path = f"{Path(tool('patchelf')).parent}:{clean_env()['PATH']}"
    remedy = "auditwheel finds no manylinux tag for it, or a library is not excluded; see the log"
    log.run(command, env=clean_env(PATH=path, **source_env()), remedy=remedy)
    (tagged,) = folder.glob("*.whl")
    check_binaries(tagged, given)
    return read_wheel(tagged)


def check_binaries(path: Path, given: Mapping[str, bytes]) -> None:
    """Checks that only the tag changed: a grafted library would mean two OpenMP runtimes."""
    packed = read_wheel(path).binaries
    wanted = {f"{PROJECT.package}/lib/{name}": content for name, content in given.items()}
    for name in sorted(packed.keys() - wanted.keys()):
        text = f"{path.name}: auditwheel has added {name}, which no task built"
        raise ReleaseError(f"{text}; add that library to EXCLUDED in pack_steps.py")
    for name, content in wanted.items():
        if packed.get(name) != content:
            raise ReleaseError(f"{path.name}: {name} is missing or was changed by auditwheel")


def write_index(root: Path) -> None:
    """Writes the index page of `root`, and one for each project's folder in it."""
    root.mkdir(parents=True, exist_ok=True)
    projects = sorted(path for path in root.iterdir() if path.is_dir())
    _page(root, ((project.name, f"{project.name}/") for project in projects))
    for project in projects:
        wheels = sorted(project.glob("*.whl"))
        _page(project, ((w.name, f"{quote(w.name)}#sha256={digest(w)}") for w in wheels))


def _page(folder: Path, links: Iterable[tuple[str, str]]) -> None:
    lines = (f'<a href="{target}">{name}</a><br>' for name, target in links)
    write_atomically(folder / "index.html", PAGE.format("\n".join(lines)))
