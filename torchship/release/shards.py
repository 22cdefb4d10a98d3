"""Checks the `dist` folders of shards before they are merged: no manifest is believed.

What goes into a release is read from the files: each thin wheel must hold the binaries of its cell,
built from the commit that the manifest names, and apart from them, files of the source
distribution, which must be those of the commit.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ..judge.binary import read_binary
from ..judge.records import BinaryRecord
from . import ReleaseError
from .audit import record_problems
from .cells import Cell, all_cells
from .collect import TOOL_KINDS, describe
from .manifest import Artefact, Binary, CellEntry, HostFacts, Manifest, leads_out
from .provenance import files_of_commit, read_sdist, sdist_problems, wheel_problems
from .settings import Settings
from .store import digest
from .tools import paths_of, tool_wheel_problems, wheel_path
from .wheels import Wheel, commits, read_wheel


def check_shards(shards: Mapping[Path, Manifest], settings: Settings) -> None:
    """Raises ReleaseError with everything that is wrong in the shards' folders."""
    problems: list[str] = []
    for folder, manifest in shards.items():
        sources, sdist_faults = _read_sources(folder, manifest, settings)
        own_problems = [
            *_project_problems(manifest, settings),
            *_artefact_problems(manifest, settings),
            *sdist_faults,
            *_cell_problems(folder, manifest, sources, settings),
            *_tool_problems(folder, manifest, settings),
        ]
        problems += [f"{folder}: {problem}" for problem in own_problems]
    problems += _clashes(shards)
    problems += _clashes_of_cells(shards)
    problems += _clashes_of_hosts(shards)
    if problems:
        raise ReleaseError("\n".join([*problems, "build these shards again, from one commit"]))


def _project_problems(manifest: Manifest, settings: Settings) -> Iterator[str]:
    project = settings.project
    for name, value, expected in (
        ("package", manifest.package, project.distribution),
        ("version", manifest.version, project.version),
        ("total number of cells", manifest.total, len(all_cells(settings.matrix))),
    ):
        if value != expected:
            yield f"its {name} is {value}, this checkout's is {expected}"


def _artefact_problems(manifest: Manifest, settings: Settings) -> Iterator[str]:
    """Finds artefacts that no cell made, and source distributions of another name."""
    sdist = f"{settings.project.distribution.replace('-', '_')}-{settings.project.version}.tar.gz"
    for artefact in manifest.artefacts:
        if artefact.kind == "sdist" and artefact.path != sdist:
            yield f"{artefact.path} is no source distribution of this version, which is {sdist}"
        if artefact.kind == "sdist" and artefact.cells:
            yield f"{artefact.path} is said to be of a cell; a source distribution is of none"
        if artefact.kind in ("thin", "conda") and not _is_of_cell(artefact, manifest):
            yield f"{artefact.path} belongs to no cell of its manifest"
        if artefact.kind in TOOL_KINDS.values() and not _is_of_tool(artefact, manifest):
            yield f"{artefact.path} belongs to no tool of its manifest"
    paths = {artefact.path for artefact in manifest.artefacts}
    for name, entry in manifest.cells.items():
        for path in (entry.wheel, entry.conda):
            if path and path not in paths:
                yield f"{name}: {path} is not among the artefacts, so its hash is unknown"


def _read_sources(
    folder: Path, manifest: Manifest, settings: Settings
) -> tuple[dict[str, bytes], list[str]]:
    """The files of a shard's source distribution, and what is wrong with it.

    A shard with changes that are not committed is merged, but never uploaded.
    """
    sdists = [artefact.path for artefact in manifest.artefacts if artefact.kind == "sdist"]
    if len(sdists) != 1:
        return {}, [f"has {len(sdists)} source distributions, needs one to compare its wheels with"]
    sources = read_sdist(folder / sdists[0], settings.project)
    committed = files_of_commit(manifest.commit, settings.repo) if manifest.clean else None
    problems = sdist_problems(sources, manifest.commit, settings.project, committed)
    return sources, [f"{sdists[0]} {problem}" for problem in problems]


def _is_of_cell(artefact: Artefact, manifest: Manifest) -> bool:
    """Whether the one cell that an artefact names has made it."""
    if len(artefact.cells) != 1 or artefact.cells[0] not in manifest.cells:
        return False
    entry = manifest.cells[artefact.cells[0]]
    return artefact.path == (entry.wheel if artefact.kind == "thin" else entry.conda)


def _is_of_tool(artefact: Artefact, manifest: Manifest) -> bool:
    files = [path for tool in manifest.tools.values() for path in tool.files]
    return artefact.path in files and not artefact.cells


def _tool_problems(folder: Path, manifest: Manifest, settings: Settings) -> Iterator[str]:
    """Finds files of tools that lie elsewhere than a run puts them, or are not what they should
    be.
    """
    tools = {tool.name: tool for tool in settings.matrix.tools}
    paths = {artefact.path for artefact in manifest.artefacts}
    for name, entry in manifest.tools.items():
        if name not in tools:
            yield f"{name} is no tool of build_matrix.yaml"
            continue
        for path in entry.files:
            if path not in paths_of(tools[name], settings):
                yield f"{name}: {path} is not where a run puts a file of it"
            elif path not in paths:
                yield f"{name}: {path} is not among the artefacts, so its hash is unknown"
        if entry.log not in (None, f"logs/{name}.log"):
            yield f"{name}: {entry.log} is not where a run puts it, logs/{name}.log"
        wheel = wheel_path(tools[name], settings)
        if wheel in entry.files and wheel in paths:
            for problem in tool_wheel_problems(
                read_wheel(folder / wheel), tools[name], settings.project.version
            ):
                yield f"{name}: {wheel}: {problem}"


def _cell_problems(
    folder: Path, manifest: Manifest, sources: Mapping[str, bytes], settings: Settings
) -> Iterator[str]:
    cells = {cell.name: cell for cell in all_cells(settings.matrix)}
    for name, entry in manifest.cells.items():
        if name not in cells:
            yield f"{name} is no cell of build_matrix.yaml"
            continue
        problems = list(_place_problems(folder, entry, cells[name], settings))
        # What a failed cell packed goes nowhere.
        if entry.packed and entry.wheel and not leads_out(folder / entry.wheel, folder):
            wheel = read_wheel(folder / entry.wheel)
            faults = [
                *_binary_problems(wheel, cells[name], manifest, settings),
                *wheel_problems(wheel, sources, settings.project),
            ]
            problems += [f"{Path(entry.wheel).name} {fault}" for fault in faults]
        for problem in problems:
            yield f"{name}: {problem}"


def _place_problems(
    folder: Path, entry: CellEntry, cell: Cell, settings: Settings
) -> Iterator[str]:
    """Finds paths that are not where a run puts the files of a cell.

    A file at another place might be copied over a file of another cell.
    """
    for path, pattern in (
        (entry.wheel, wheel_pattern(cell, settings)),
        (entry.conda, conda_pattern(settings)),
        (entry.log, f"logs/{cell.name}.log"),
    ):
        if path is None:
            continue
        if not is_at(path, pattern):
            yield f"{path} is not where a run puts it, {pattern}"
        elif not (folder / path).is_file():
            yield f"{path} is missing"
        elif leads_out(folder / path, folder):
            yield f"{path} is a link to a file outside of the folder"


def is_at(path: str, pattern: str) -> bool:
    """Whether a path in `dist` matches a pattern, whose `*` does not match a `/`."""
    return PurePosixPath(path).match(pattern) and path.count("/") == pattern.count("/")


def wheel_pattern(cell: Cell, settings: Settings) -> str:
    """Where the thin wheel of a cell lies in `dist`; the tag depends on its binaries."""
    project = settings.project
    index = settings.thin_wheels.relative_to(settings.dist)
    name = project.distribution.replace("-", "_")
    return f"{index}/{name}-{project.version}+{cell.local_version}-py3-none-*.whl"


def conda_pattern(settings: Settings) -> str:
    """Where conda packages of this version lie in `dist`."""
    channel = settings.channel.relative_to(settings.dist)
    project = settings.project
    return f"{channel}/{settings.subdir}/{project.distribution}-{project.version}-*.conda"


def _binary_problems(
    wheel: Wheel, cell: Cell, manifest: Manifest, settings: Settings
) -> Iterator[str]:
    """Finds what a thin wheel holds instead of the binaries of its cell."""
    names = sorted(Path(name).name for name in wheel.binaries)
    if names != sorted(cell.files):
        yield f"holds {', '.join(names) or 'nothing'}, needs {', '.join(cell.files)}"
        return
    if misplaced := sorted(wheel.binaries.keys() - binary_paths([cell], settings)):
        yield f"holds {misplaced[0]}, where no loader looks for it"
    if f"\nVersion: {wheel.version}\n".encode() not in wheel.info.get("METADATA", b""):
        yield "has a METADATA of another version than its name"
    with TemporaryDirectory() as unpacked:
        for binary in unpack_binaries(wheel, Path(unpacked)):
            record = read_binary(binary)
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


def binary_paths(cells: Iterable[Cell], settings: Settings) -> set[str]:
    """The paths of the cells' binaries in a wheel."""
    return {f"{settings.project.package}/lib/{name}" for cell in cells for name in cell.files}


def fat_wheel_problems(wheel: Wheel, manifest: Manifest, settings: Settings) -> Iterator[str]:
    """Finds what a fat wheel holds instead of the binaries that its manifest names."""
    cells = [cell for cell in all_cells(settings.matrix) if cell.name not in manifest.missing]
    expected = binary_paths(cells, settings)
    for path in sorted(expected - wheel.binaries.keys()):
        yield f"lacks {path}"
    for path, data in sorted(wheel.binaries.items()):
        entry = manifest.binaries.get(Path(path).name)
        if path not in expected or entry is None:
            yield f"holds {path}, which no cell of the manifest made"
        elif hashlib.sha256(data).hexdigest() != entry.sha256:
            yield f"holds another {path} than the manifest says"
    if manifest.commit not in (names := commits(wheel)) or len(names) > 1:
        yield f"holds binaries of commit {', '.join(names)}, the manifest says {manifest.commit}"


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


def _clashes_of_cells(shards: Mapping[Path, Manifest]) -> list[str]:
    """Finds cells that two shards packed into files of different names."""
    origin: dict[tuple[str, str], tuple[Path, str]] = {}
    clashes = []
    for folder, manifest in shards.items():
        for name, entry in manifest.cells.items():
            for kind, path in (("wheel", entry.wheel), ("conda package", entry.conda)):
                if path is None:
                    continue
                other, other_path = origin.setdefault((name, kind), (folder, path))
                if path != other_path:
                    clashes.append(
                        f"{name}: its {kind} is {path} in {folder}, {other} has {other_path}"
                    )
    return clashes


def _clashes_of_hosts(shards: Mapping[Path, Manifest]) -> list[str]:
    """Finds machines of one key, which is a hash of their facts, and other facts."""
    origin: dict[str, tuple[Path, HostFacts]] = {}
    clashes = []
    for folder, manifest in shards.items():
        for key, facts in manifest.hosts.items():
            other, other_facts = origin.setdefault(key, (folder, facts))
            if facts != other_facts:
                clashes.append(f"the facts of host {key} differ in {folder} and {other}")
    return clashes
