"""Checks the `dist` folders of shards before they are merged: no manifest is believed.

What goes into a release is read from the files: each thin wheel must hold the binaries of its cell,
built from the commit that the manifest names.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ..doctor.binary import read_binary
from ..doctor.records import BinaryRecord
from . import ReleaseError
from .audit import record_problems
from .cells import Cell, all_cells
from .collect import describe
from .manifest import Artefact, Binary, CellEntry, Manifest
from .settings import Settings
from .store import digest
from .wheels import Wheel, read_wheel


def check_shards(shards: Mapping[Path, Manifest], settings: Settings) -> None:
    """Raises ReleaseError with everything that is wrong in the shards' folders."""
    problems: list[str] = []
    cells = {cell.name: cell for cell in all_cells(settings.matrix)}
    for folder, manifest in shards.items():
        own_problems = [
            *_project_problems(manifest, settings),
            *_artefact_problems(manifest, settings),
            *_cell_problems(folder, manifest, cells),
        ]
        problems += [f"{folder}: {problem}" for problem in own_problems]
    problems += _clashes(shards)
    if problems:
        raise ReleaseError("\n".join([*problems, "build these shards again, from one commit"]))


def _project_problems(manifest: Manifest, settings: Settings) -> Iterator[str]:
    project = settings.project
    for name, value, expected in (
        ("package", manifest.package, project.distribution),
        ("version", manifest.version, project.version),
    ):
        if value != expected:
            yield f"its {name} is {value}, this checkout's is {expected}"


def _artefact_problems(manifest: Manifest, settings: Settings) -> Iterator[str]:
    """Finds artefacts that no cell made, and source distributions of another name."""
    sdist = f"{settings.project.distribution.replace('-', '_')}-{settings.project.version}.tar.gz"
    for artefact in manifest.artefacts:
        if artefact.kind == "sdist" and artefact.path != sdist:
            yield f"{artefact.path} is no source distribution of this version, which is {sdist}"
        if artefact.kind in ("thin", "conda") and not _is_of_cell(artefact, manifest):
            yield f"{artefact.path} belongs to no cell of its manifest"
    paths = {artefact.path for artefact in manifest.artefacts}
    for name, entry in manifest.cells.items():
        if entry.packed and entry.wheel not in paths:
            yield f"{name}: {entry.wheel} is not among the artefacts, so its hash is unknown"


def _is_of_cell(artefact: Artefact, manifest: Manifest) -> bool:
    """Whether the one cell that an artefact names has made it."""
    if len(artefact.cells) != 1 or artefact.cells[0] not in manifest.cells:
        return False
    entry = manifest.cells[artefact.cells[0]]
    return artefact.path == (entry.wheel if artefact.kind == "thin" else entry.conda)


def _cell_problems(folder: Path, manifest: Manifest, cells: Mapping[str, Cell]) -> Iterator[str]:
    for name, entry in manifest.cells.items():
        if name not in cells:
            yield f"{name} is no cell of build_matrix.yaml"
        elif entry.packed:
            for problem in _wheel_problems(folder, entry, cells[name], manifest):
                yield f"{name}: {problem}"


def _wheel_problems(
    folder: Path, entry: CellEntry, cell: Cell, manifest: Manifest
) -> Iterator[str]:
    """Finds what a thin wheel holds instead of the binaries of its cell."""
    wheel = read_wheel(folder / str(entry.wheel))
    names = sorted(Path(path).name for path in wheel.binaries)
    if names != sorted(cell.files):
        yield f"{entry.wheel} holds {', '.join(names) or 'nothing'}, needs {', '.join(cell.files)}"
        return
    with TemporaryDirectory() as unpacked:
        for path in unpack_binaries(wheel, Path(unpacked)):
            record = read_binary(path)
            yield from record_problems(record, cell)
            yield from _origin_problems(record, manifest)


def _origin_problems(record: BinaryRecord, manifest: Manifest) -> Iterator[str]:
    """Finds a binary of another name, version or commit than the manifest says."""
    if record.record is None:
        return
    file = record.path.name
    if file != f"{record.kind}-{record.name}.so":
        yield f"{file}: its record says {record.kind} {record.name}"
    facts = json.loads(record.record.text)
    for name, expected in (
        ("package", manifest.package),
        ("version", manifest.version),
        ("git_commit", manifest.commit),
    ):
        if facts.get(name) != expected:
            yield f"{file}: its record has {name} {facts.get(name)}, the manifest {expected}"


def unpack_binaries(wheel: Wheel, folder: Path) -> list[Path]:
    """Writes the binaries of a wheel into a folder; returns their paths, sorted by name."""
    paths = []
    for name, data in sorted(wheel.binaries.items()):
        path = folder / Path(name).name
        path.write_bytes(data)
        paths.append(path)
    return paths


def describe_binaries(wheel: Wheel) -> dict[str, Binary]:
    """The manifest's entries of the binaries in a wheel, read from the binaries."""
    with TemporaryDirectory() as unpacked:
        paths = unpack_binaries(wheel, Path(unpacked))
        return {path.name: describe(path) for path in paths}


def _clashes(shards: Mapping[Path, Manifest]) -> list[str]:
    """Finds files of one path and other bytes in two shards."""
    origin: dict[str, tuple[Path, str]] = {}
    clashes = []
    for folder, manifest in shards.items():
        for artefact in manifest.artefacts:
            if artefact.kind == "fat":
                continue  # a merge makes its own
            sha256 = digest(folder / artefact.path)
            other, other_sha256 = origin.setdefault(artefact.path, (folder, sha256))
            if sha256 != other_sha256:
                clashes.append(f"{artefact.path} in {folder} is another file than that in {other}")
    return clashes
