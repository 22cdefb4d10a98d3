"""Packs the source distribution, a thin wheel per cell, and a fat wheel that joins thin wheels."""

import gzip
import io
import json
import sys
import tarfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from packaging.version import Version

from ... import ReleaseError
from ...matrix.cells import Cell, required
from ...matrix.settings import Settings
from ...paths import fresh, publish, replace_wheel, write_atomically
from ...plan.plan import Plan
from ...root import IMPORT_PATH
from ...run.shell import Log, clean_env
from ...run.store import digest, source_env, source_epoch
from ...run.tasks import GOOD, Context, FileTask, SkipTask, Status, Task, Tasks
from ..compile.audit import ALLOWED, Audit, policies
from ..compile.objects import objects_of
from ..step import CellStep, File, Part, Step
from .sources import package_sources
from .wheels import Wheel, join, read_wheel

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0"></head>
<body>
{}
</body>
</html>
"""


def prebuilt_variable(settings: Settings) -> str:
    """The environment variable that names a folder of compiled binaries for a build to pack."""
    return settings.project.variable("PREBUILT")


def unpack(sdist: Path, folder: Path) -> Path:
    """The one folder of a source distribution, unpacked into `folder`."""
    with tarfile.open(sdist) as archive:
        # A Python before 3.10.12 or 3.11.4, such as Debian 12's, has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    (source,) = folder.iterdir()
    return source


@dataclass(frozen=True, eq=False, kw_only=True)
class PackSdist(Step[Path], FileTask):
    """Makes the source distribution in a copy of the sources, since the build adds files there."""

    kind = "sdist"
    epoch: int

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "PackSdist":
        epoch = plan.inputs.epoch
        return plan.add(cls(name=cls.kind, epoch=epoch, inputs=plan.inputs.package), cell)

    def part(self, made: Path, settings: Settings) -> Part:
        return Part(files=(File(made, "sdist", ("pypi",)),))

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        work = settings.temporary / "sdist"
        stage = fresh(work / "source")
        for path in package_sources(settings.repo):
            target = stage / path.relative_to(settings.repo)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        out = fresh(work / "out")
        run_build(context, "--sdist", stage, out)
        (archive,) = out.glob("*.tar.gz")
        final = repack(archive, fresh(work / "final"), self.epoch)
        return [publish(final, settings.dist / final.name)]


def run_build(
    context: Context,
    kind: str,
    source: Path,
    out: Path,
    *,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Runs the build backend for a distribution of `kind`, `--sdist` or `--wheel`."""
    settings = context.settings
    # The project's build backend may be this torchship.
    paths = {"PYTHONPATH": str(IMPORT_PATH)}
    env = clean_env(settings.project, **paths, **source_env(settings), **(variables or {}))
    # What else a pyproject.toml wants for the build, torchship's backend does without.
    options = ["--no-isolation", "--skip-dependency-check", "--outdir", str(out)]
    command = [sys.executable, "-m", "build", kind, *options, str(source)]
    context.log.run(command, env=env)


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
            entry.size = member.size
            entry.type = member.type
            entry.linkname = member.linkname
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            entry.mtime = epoch
            new.addfile(entry, old.extractfile(member))
    return final


def gather(binaries: Iterable[Path], folder: Path) -> Path:
    """Copies binaries into the new `folder`, for a build that `prebuilt_variable` leads there."""
    fresh(folder)
    for path in binaries:
        publish(path, folder / path.name)
    return folder


@dataclass(frozen=True, eq=False, kw_only=True)
class PackWheel(CellStep[Path], FileTask):
    """Packs the thin wheel of one cell, with its true platform tag, into the index's folder."""

    kind = "wheel"
    cell: Cell
    sdist: Task[Path]
    binaries: tuple[Task[Path], ...]

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "PackWheel":
        step = cls(
            name=f"{cls.kind}/{cell}",
            cell=cell,
            sdist=PackSdist.plan(cell, plan),
            binaries=objects_of(cell, plan),
            after=(Audit.plan(cell, plan),),
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.sdist, *self.binaries)

    def part(self, made: Path, settings: Settings) -> Part:
        return Part(files=(File(made, "thin", ("folder",), (self.cell.name,)),))

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        work = settings.temporary / "wheel" / self.cell.name
        binaries = context.outputs(self.binaries)
        source = unpack(context.output(self.sdist), fresh(work / "source"))
        variables = {prebuilt_variable(settings): str(gather(binaries, work / "prebuilt"))}
        if settings.is_foreign:
            # Without this variable the wheel's tag would name the platform of this machine.
            variables["_PYTHON_HOST_PLATFORM"] = settings.platform
        out = fresh(work / "out")
        run_build(context, "--wheel", source, out, variables=variables)
        (built,) = out.glob("*.whl")
        wheel = read_wheel(built)
        check_binaries(
            wheel, {path.name: path.read_bytes() for path in binaries}, settings.project.package
        )
        tagged = wheel.renamed(local=self.cell.local_version, tag=true_tag(wheel, settings.machine))
        final = tagged.write(fresh(work / "final"), epoch=source_epoch(settings))
        return [replace_wheel(final, settings.thin_wheels)]


class PackedCell(NamedTuple):
    """A cell's name, the task that packed its thin wheel, and all of its tasks."""

    name: str
    wheel: Task[Path]
    tasks: Tasks


class FatWheel(NamedTuple):
    """The fat wheel, and a JSON file with the names of the cells whose wheels it joins."""

    wheel: Path
    cells: Path


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinWheels(Step[FatWheel]):
    """Joins the thin wheels of this run's cells and the `kept` wheels of an earlier run.

    The fat wheel leaves out cells of which a task has failed, whatever it was, as a merge does; and
    kept wheels that `agreeing` leaves out. Which cells it holds is decided here alone.
    """

    kind = "fat-wheel"
    packed: tuple[PackedCell, ...]
    kept: Mapping[str, Path]
    required: tuple[str, ...]
    limit: int

    @classmethod
    def plan(cls, packed: Sequence[PackedCell], plan: Plan) -> "JoinWheels":
        """The step of a whole plan, once the cells have their steps."""
        matrix = plan.settings.matrix
        step = cls(
            name=cls.kind,
            packed=tuple(packed),
            kept=plan.kept,
            required=tuple(required(matrix)),
            limit=matrix.project.wheel_limit,
            inputs=tuple(plan.kept.values()),
            anyway=True,
        )
        return plan.add(step)

    @property
    def reads(self) -> Tasks:
        return tuple(task for cell in self.packed for task in (cell.wheel, *cell.tasks))

    def made(self, paths: Sequence[Path]) -> FatWheel:
        return FatWheel(*paths)

    def part(self, made: FatWheel, settings: Settings) -> Part:
        cells = json.loads(made.cells.read_text(encoding="utf-8"))
        return Part(files=(fat_file(made.wheel, cells),))

    def run(self, context: Context) -> Sequence[Path]:
        wheels: dict[str, Path] = {}
        for cell in self.packed:
            # This step runs anyway, so a wheel may be missing.
            is_packed = context.outcomes[cell.wheel.name].status in GOOD
            outcomes = [context.outcomes[task.name] for task in cell.tasks]
            if is_packed and all(outcome.status is not Status.FAILED for outcome in outcomes):
                wheels[cell.name] = context.output(cell.wheel)
        wheels |= agreeing(self.kept, wheels.values())
        if not wheels:
            raise SkipTask(
                "no variant has a wheel without failures, so the fat wheel would be empty"
            )
        fat = make_fat_wheel(context.log, wheels, required=self.required, limit=self.limit)
        cells = context.settings.build / "fat-wheel.json"
        write_atomically(cells, json.dumps(sorted(wheels)))
        return [replace_wheel(fat, context.settings.dist, any_version=True), cells]


def fat_file(wheel: Path, cells: Iterable[str]) -> File:
    """The fat wheel of these cells."""
    return File(wheel, "fat", ("pypi",), tuple(sorted(cells)))


def agreeing(kept: Mapping[str, Path], wheels: Iterable[Path]) -> dict[str, Path]:
    """The kept wheels, except those that hold another build of a binary in `wheels`."""
    binaries: dict[str, bytes] = {}
    for path in wheels:
        binaries |= read_wheel(path).binaries
    return {
        cell: path
        for cell, path in kept.items()
        if all(binaries.get(name, data) == data for name, data in read_wheel(path).binaries.items())
    }


def make_fat_wheel(
    log: Log, wheels: Mapping[str, Path], *, required: Collection[str], limit: int
) -> Path:
    """Writes the joined wheel with its true tag.

    `required` has the names of the cells that a whole wheel holds. Raises ReleaseError if
    the wheel has more than `limit` bytes.
    """
    settings = log.settings
    local = partial_version(wheels, required)
    joined = join(dict(sorted(wheels.items())), local=local, platform=settings.platform)
    for name, data in joined.binaries.items():
        log.write(f"{name}: {len(data)} bytes")
    tagged = joined.renamed(local=local, tag=true_tag(joined, settings.machine))
    final = tagged.write(fresh(settings.temporary / "fat-wheel"), epoch=source_epoch(settings))
    size = final.stat().st_size
    if size > limit:
        raise ReleaseError(
            f"{final.name}: {size} bytes, at most {limit} are allowed; "
            "build for fewer architectures, or see in the log what grew"
        )
    return final


def partial_version(packed: Collection[str], required: Collection[str]) -> str | None:
    """The local version of a wheel: `partial.3of15` for 3 of 15 required cells, None for all 15."""
    count = len({*packed} & {*required})
    return None if count == len(required) else f"partial.{count}of{len(required)}"


def true_tag(wheel: Wheel, machine: str) -> str:
    """The wheel's tag with the oldest manylinux platform that auditwheel's policies allow.

    Raises ReleaseError if the policies allow none, or if a binary needs a library outside
    ALLOWED.
    """
    from auditwheel.elfutils import elf_find_versioned_symbols
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    symbols: dict[str, set[str]] = defaultdict(set)
    for name, data in wheel.binaries.items():
        elf = ELFFile(io.BytesIO(data))
        dynamic = elf.get_section_by_name(".dynamic")
        tags = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
        libraries = [str(getattr(tag, "needed")) for tag in tags]  # noqa: B009 - not in its types
        strange = [name for name in libraries if not ALLOWED.fullmatch(name)]
        if strange:
            raise ReleaseError(
                f"{name}: needs {strange[0]}, which is outside the allowed libraries"
            )
        for library, version in elf_find_versioned_symbols(elf):
            symbols[library].add(version)
    policy = policies(machine).versioned_symbols_policy(symbols)
    if policy.name.startswith("linux"):
        raise ReleaseError(
            f"{wheel.name} {wheel.version}: its binaries need newer system libraries than any "
            "manylinux tag allows; build in a manylinux image"
        )
    return f"py3-none-{'.'.join(sorted([policy.name, *policy.aliases]))}"


def check_binaries(wheel: Wheel, binaries: Mapping[str, bytes], package: str) -> None:
    """Checks that the wheel of `package` holds these binaries (contents by file name) alone."""
    expected = {f"{package}/lib/{name}": data for name, data in binaries.items()}
    names = {*expected, *wheel.binaries}
    if wrong := sorted(n for n in names if expected.get(n) != wheel.binaries.get(n)):
        raise ReleaseError(
            f"{wheel.name} {wheel.version}: {wrong[0]} is missing, was changed or was added when "
            "the wheel was packed; build it again"
        )


def write_index(root: Path, yanked: Mapping[str, str] | None = None) -> None:
    """Writes the index page of `root`, and the page of each project's folder in `root`.

    `yanked` has the reasons of the versions that pip must pass over (PEP 592).
    """
    reasons = yanked or {}
    root.mkdir(parents=True, exist_ok=True)
    projects = sorted(path for path in root.iterdir() if path.is_dir())
    _write_page(root, (_link(project.name, f"{project.name}/") for project in projects))
    for project in projects:
        links = []
        for wheel in sorted(project.glob("*.whl")):
            reason = reasons.get(Version(wheel.name.split("-")[1]).public)
            links.append(_link(wheel.name, _target(wheel), reason))
        _write_page(project, links)


def _target(path: Path) -> str:
    return f"{quote(path.name)}#sha256={digest(path)}"


def _link(name: str, target: str, yanked: str | None = None) -> str:
    mark = "" if yanked is None else f' data-yanked="{escape(yanked)}"'
    return f'<a href="{target}"{mark}>{name}</a><br>'


def _write_page(folder: Path, links: Iterable[str]) -> None:
    write_atomically(folder / "index.html", PAGE.format("\n".join(links)))
