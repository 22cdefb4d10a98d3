"""The artefacts of a version of a clone: its true Python files, and binaries built before.

The host cell has binaries that load; they are given the record of this version and commit. Those
of the other cells are objects of one page, which no machine here would load. Conda packages of this
machine's platform are built by the step of a release; those for Arm, which that step builds on Arm,
are written here.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from measurements.release_accidents import make_objects
from torchship.judge.binary import read_binary
from torchship.release.cells import Cell, all_cells, for_conda, render, row
from torchship.release.collect import artefacts, describe
from torchship.release.conda_format import write_package
from torchship.release.conda_steps import BuildPackage, check_package
from torchship.release.manifest import CellEntry, Manifest, ToolEntry, write
from torchship.release.pack_steps import true_tag
from torchship.release.schema import FIRST
from torchship.release.settings import Settings
from torchship.release.shell import Log
from torchship.release.tasks import Context, Outcome, Status, Task
from torchship.release.tools import wheel_path
from torchship.release.wheels import Wheel, read_wheel

from .prebuilt import EPOCH, Order, Prebuilt
from .source import Source

# After release_accidents, which puts the folders of tests on sys.path.
from small_releases import HOST  # isort: skip

MADE = "2026-01-01T00:00:00Z"
CONDA_FORGE = "https://conda.anaconda.org/conda-forge"


@dataclass(frozen=True, kw_only=True)
class Distributions:
    """What a version's commit is packed into, by the project's own build backend."""

    sdist: Path
    wheel: Wheel
    tools: dict[str, Path]

    @classmethod
    def build(cls, source: Source, settings: Settings, out: Path, binaries: Path) -> Distributions:
        folders = {tool.name: tool.folder for tool in settings.matrix.tools}
        wheel = source.build_wheel(".", out / "wheel", binaries)
        return cls(
            sdist=source.build_sdist(out / "sdist"),
            wheel=read_wheel(wheel),
            tools={
                name: source.build_wheel(folder, out / name) for name, folder in folders.items()
            },
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Binary(Task):
    """A binary that was built before."""

    path: Path

    def run(self, context: Context) -> Sequence[Path]:
        return [self.path]


def stamp(binary: Path, version: str, commit: str) -> bytes:
    """A binary with the record of this version and commit, each as long as the one before."""
    record = read_binary(binary).record
    if record is None:
        raise ValueError(f"{binary}: carries no record, so it is none of ours")
    facts = json.loads(record.text)
    data = binary.read_bytes()
    for name, new in (("version", version), ("git_commit", commit)):
        old = f'"{name}": "{facts[name]}"'.encode()
        stamped = f'"{name}": "{new}"'.encode()
        if len(old) != len(stamped) or data.count(old) != 1:
            raise ValueError(f"{binary.name}: its {name} {facts[name]} cannot become {new}")
        data = data.replace(old, stamped)
    return data


@dataclass
class TrueFiles(Prebuilt):
    """Makes `dist` folders of one version; `binaries` has those of the host cell.

    `base_channel` is the address of a channel with the Python and the setuptools that conda
    packages are built with.
    """

    source: Source = field(kw_only=True)
    binaries: Path = field(kw_only=True)
    base_channel: str = field(kw_only=True)
    _built: Distributions | None = None

    @property
    def version(self) -> str:
        return self.settings[FIRST].project.version

    def settings_for(self, dist: Path) -> Settings:
        """The settings of a checkout of this version, with another folder as its `dist`."""
        return replace(self.settings[FIRST], dist=dist, build=self.folder / "build")

    def make(self, order: Order, place: Path) -> None:
        settings = self.settings[order.platform]
        built = self._distributions()
        (place / "logs").mkdir(parents=True)
        sdist = Path(shutil.copy(built.sdist, place))
        entries = {
            cell.name: self._pack(cell, place, settings)
            for cell in all_cells(settings.matrix)
            if cell.name in order.cells
        }
        tools: dict[str, ToolEntry] = {}
        if order.has_tools:
            for tool in settings.matrix.tools:
                path = place / wheel_path(tool, settings)
                path.parent.mkdir(parents=True)
                shutil.copy(built.tools[tool.name], path)
                name = path.relative_to(place).as_posix()
                tools[tool.name] = ToolEntry(state="done", files=[name], host="h")
        manifest = self._describe(order, entries)
        listed = artefacts(entries, place, sdists=[sdist], fat_wheels=[], tools=tools)
        update = {"tools": tools, "artefacts": listed}
        write(manifest.model_copy(update=update), place / "manifest.json")

    def _distributions(self) -> Distributions:
        if self._built is None:
            stamped = self.folder / "stamped"
            stamped.mkdir(parents=True)
            for binary in sorted(self.binaries.glob("*.so")):
                (stamped / binary.name).write_bytes(stamp(binary, self.version, self.commit))
            self._built = Distributions.build(
                self.source, self.settings[FIRST], self.folder / "built", stamped
            )
        return self._built

    def _objects_of(self, platform: str) -> dict[str, bytes]:
        if platform not in self._objects:
            cells = all_cells(self.settings[platform].matrix)
            origin = {"version": self.version, "git_commit": self.commit}
            objects = make_objects(cells, self.folder / "objects" / platform, origin)
            if platform == FIRST:
                built = self._distributions().wheel.binaries
                objects |= {Path(name).name: data for name, data in built.items()}
            self._objects[platform] = objects
        return self._objects[platform]

    def _pack(self, cell: Cell, place: Path, settings: Settings) -> CellEntry:
        """The thin wheel and the conda package of a cell."""
        library = f"{settings.project.package}/lib"
        objects = self._objects_of(settings.platform)
        base = self._distributions().wheel
        python = {name: data for name, data in base.files.items() if name not in base.binaries}
        binaries = {f"{library}/{name}": objects[name] for name in cell.files}
        wheel = base._replace(files={**python, **binaries})
        tagged = wheel.renamed(local=cell.local_version, tag=true_tag(wheel, settings.machine))
        index = place / "simple" / settings.project.distribution
        index.mkdir(parents=True, exist_ok=True)
        path = tagged.write(index, epoch=EPOCH)
        package: Path | None = None
        if settings.platform == FIRST and for_conda(cell):
            package = self._build_conda(cell, place, path)
        elif for_conda(cell):
            package = _write_conda(wheel, cell, place / "channel" / settings.subdir, settings)
        log = place / "logs" / f"{cell.name}.log"
        log.write_text(f"the log of {cell.name}\n")
        return CellEntry(
            state="done",
            torch=cell.torch.release,
            binaries=list(cell.files),
            wheel=path.relative_to(place).as_posix(),
            conda=package.relative_to(place).as_posix() if package else None,
            log=log.relative_to(place).as_posix(),
            host="h",
        )

    def _build_conda(self, cell: Cell, place: Path, wheel: Path) -> Path:
        """The conda package of a cell in the channel of `place`, by the step of a release."""
        settings = self.settings_for(place)
        folder = self.folder / "binaries" / cell.name
        folder.mkdir(parents=True, exist_ok=True)
        binaries: list[Binary] = []
        for name in cell.files:
            path = folder / name
            path.write_bytes(self._objects_of(FIRST)[name])
            binaries.append(Binary(name=name, path=path))
        build = BuildPackage(
            name=f"conda/{cell}",
            cell=cell,
            binaries=tuple(binaries),
            channel=self.base_channel,
            variants=render([cell], settings.matrix),
        )
        outcomes = {
            task.name: Outcome(task.name, Status.DONE, outputs=(task.path,)) for task in binaries
        }
        with Log(settings.build / "logs" / f"{cell.name}.log", settings) as log:
            (package,) = build.run(Context(log, settings, outcomes=outcomes))
            check_package(log, package, [task.path for task in binaries], wheel=wheel)
        return package

    def _describe(self, order: Order, cells: dict[str, CellEntry]) -> Manifest:
        """The manifest of these cells, without artefacts."""
        settings = self.settings[order.platform]
        every = all_cells(settings.matrix)
        objects = self._objects_of(order.platform)
        binaries = {}
        with TemporaryDirectory() as folder:
            for name in {name for entry in cells.values() for name in entry.binaries}:
                path = Path(folder, name)
                path.write_bytes(objects[name])
                binaries[name] = describe(path)
        return Manifest(
            package=settings.project.distribution,
            version=self.version,
            commit=self.commit,
            clean=True,
            sources="s" * 64,
            source_date=MADE,
            base_channel=CONDA_FORGE,
            made=MADE,
            seconds=1.0,
            total=len(every),
            missing={cell.name: "not selected" for cell in every if cell.name not in cells},
            optional=[cell.name for cell in every if cell.optional],
            cells=cells,
            binaries=binaries,
            artefacts=[],
            hosts={"h": HOST.model_copy(update={"image": order.image})},
        )


def _write_conda(wheel: Wheel, cell: Cell, folder: Path, settings: Settings) -> Path:
    """The conda package of a cell for Arm, as recipe/recipe.yaml describes it."""
    project = settings.project
    cuda = row(cell, settings.matrix)[1]
    number = (100 if cell.stable else 0) + (200 if cuda else 0)
    device = f"cuda{cuda.replace('.', '')}" if cuda else "cpu"
    build = f"{device}_{cell.glue.replace('-', '_')}_{number}"
    pytorch = f"pytorch {row(cell, settings.matrix)[-1]} {'*cuda*_py*' if cuda else '*_py*'}"
    depends = ["python >=3.10", pytorch]
    if cell.cuda_major is not None:
        depends.append(f"__cuda >={cell.cuda_major}")
    info = f"{wheel.name}-{project.version}.dist-info"
    files = {f"site-packages/{name}": data for name, data in wheel.files.items()}
    files |= {f"site-packages/{info}/{name}": data for name, data in wheel.info.items()}
    index = {
        "name": project.distribution,
        "version": project.version,
        "build": build,
        "build_number": number,
        "depends": depends,
        "noarch": "python",
        "subdir": settings.subdir,
    }
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_in_bytes": len(data),
        }
        for name, data in files.items()
    ]
    link = {"noarch": {"type": "python"}, "package_metadata_version": 1}
    with TemporaryDirectory() as unpacked:
        root = Path(unpacked)
        for name, document in (
            ("index", index),
            ("paths", {"paths": paths, "paths_version": 1}),
            ("link", link),
        ):
            files[f"info/{name}.json"] = json.dumps(document).encode()
        for name, data in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        folder.mkdir(parents=True, exist_ok=True)
        package = folder / f"{project.distribution}-{project.version}-{build}.conda"
        write_package(package, root, EPOCH)
    return package
