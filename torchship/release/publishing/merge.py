"""Joins the `dist` folders of shards."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console

from .. import ReleaseError
from ..matrix.cells import all_cells, required
from ..matrix.settings import Settings
from ..paths import publish, replace_wheel
from ..run.collect import describe, in_order, missing
from ..run.manifest import (
    Artefact,
    Binary,
    CellEntry,
    HostFacts,
    Manifest,
    ToolEntry,
    of_shards,
    write,
)
from ..run.release import only_run
from ..run.shell import Log
from ..run.store import relative
from ..steps.conda.packages import check_package, index_package
from ..steps.pack.distributions import fat_file, make_fat_wheel, write_index
from ..steps.pack.wheels import read_wheel, unpack_binaries
from .provenance import files_of_commit, result_problems

# The states of a cell from the best to the worst: the shard that came furthest counts.
RANK = {"done": 0, "partial": 1, "failed": 2, "skipped": 3}


class Shards(NamedTuple):
    """The manifests of the shards by their folders, and for each cell the folder that counts."""

    manifests: Mapping[Path, Manifest]
    origin: Mapping[str, Path]

    @property
    def cells(self) -> dict[str, CellEntry]:
        """The entries of the cells; what a cell packed that then failed is left behind."""
        entries = {name: self.manifests[folder].cells[name] for name, folder in self.origin.items()}
        left_behind = {"wheel": None, "conda": None}
        return {
            name: entry if entry.packed else entry.model_copy(update=left_behind)
            for name, entry in entries.items()
        }

    @property
    def wheels(self) -> dict[str, Path]:
        """The thin wheels of the packed cells."""
        return {
            name: self.origin[name] / str(cell.wheel)
            for name, cell in self.cells.items()
            if cell.packed
        }

    def entries_of(self, folder: Path) -> dict[str, CellEntry]:
        """The entries of the cells that a folder contributes."""
        return {name: cell for name, cell in self.cells.items() if self.origin[name] == folder}

    def artefacts_of(self, folder: Path) -> list[Artefact]:
        """The files for users that a folder contributes; a merge makes its own fat wheel."""
        usable = {name for name, entry in self.entries_of(folder).items() if entry.packed}
        own = self.manifests[folder].artefacts
        return [a for a in own if a.kind != "fat" and {*a.cells} <= usable]


def merge(folders: Sequence[Path], console: Console, settings: Settings) -> int:
    """Joins the `dist` folders of shards into this one.

    Returns 1 if a tool has failed, or a cell that is not optional, else 0.
    """
    shards = _read_shards(folders, settings)
    with only_run(settings, console):
        if not shards.wheels:
            raise ReleaseError("no shard built a variant to merge; the shards' logs say why")
        with Log(settings.logs / "merge.log", settings) as log:
            fat = make_fat_wheel(
                log,
                shards.wheels,
                required=required(settings.matrix),
                limit=settings.matrix.project.wheel_limit,
            )
            for folder in shards.manifests:
                _publish(folder, shards, log)
            final = replace_wheel(fat, settings.dist, any_version=True)
            manifest = _join(shards, final, settings)
            _check_result(manifest, log)
        write_index(settings.index)
        write(manifest, settings.manifest)
    if files_of_commit(manifest.commit, settings.repo) is None:
        console.print(
            f"the source distribution was not compared with commit {manifest.commit}, which this "
            "checkout does not have; the wheels hold what the source distribution holds",
            markup=False,
            soft_wrap=True,
        )
    for name, cell in manifest.cells.items():
        if cell.state == "failed":
            label = f"{name} (optional)" if name in manifest.optional else name
            console.print(f"FAILED {label}: {cell.reason}", markup=False, soft_wrap=True)
    for name, tool in manifest.tools.items():
        if tool.state == "failed":
            console.print(f"FAILED {name}: {tool.reason}", markup=False, soft_wrap=True)
    console.print(
        f"merged {len(manifest.cells)} cells of {len(shards.manifests)} folders into "
        f"{relative(final, settings.repo)}{manifest.lacks}",
        markup=False,
        soft_wrap=True,
    )
    return 1 if manifest.failed else 0


def _read_shards(folders: Sequence[Path], settings: Settings) -> Shards:
    manifests = of_shards(folders)
    _refuse_clashes(manifests)
    origin: dict[str, Path] = {}
    for cell in all_cells(settings.matrix):
        candidates = [
            folder for folder, manifest in manifests.items() if cell.name in manifest.cells
        ]
        if candidates:
            ranks = {folder: _rank(cell.name, manifests[folder]) for folder in candidates}
            origin[cell.name] = min(candidates, key=ranks.__getitem__)
    return Shards(manifests=manifests, origin=origin)


def _rank(cell: str, manifest: Manifest) -> tuple[int, int]:
    """How far a shard came with a cell: the lowest counts, and the files that it has decide."""
    return RANK[manifest.cells[cell].state], -len(manifest.of_cell(cell))


def _refuse_clashes(shards: Mapping[Path, Manifest]) -> None:
    """Raises ReleaseError if two shards have a file of one path with other bytes."""
    origin: dict[str, tuple[Path, str]] = {}
    for folder, manifest in shards.items():
        for artefact in manifest.artefacts:
            if artefact.kind == "fat":
                continue  # a merge makes its own
            other, sha256 = origin.setdefault(artefact.path, (folder, artefact.sha256))
            if sha256 != artefact.sha256:
                raise ReleaseError(
                    f"{artefact.path} in {folder} differs from that in {other}; "
                    "build these shards again, from one commit"
                )


def _check_result(manifest: Manifest, log: Log) -> None:
    """Raises ReleaseError if a merged file holds what its commit, or its cell, does not have."""
    dist = log.settings.dist
    if problems := [*result_problems(manifest, log.settings, kinds={"fat", "thin"})]:
        raise ReleaseError("\n".join([*problems, "build the shards again, from one commit"]))
    for cell in manifest.cells.values():
        if cell.wheel and cell.conda:
            with TemporaryDirectory() as unpacked:
                wheel = dist / cell.wheel
                binaries = unpack_binaries(read_wheel(wheel), Path(unpacked))
                check_package(log, dist / cell.conda, binaries, wheel=wheel)


def _join(shards: Shards, fat: Path, settings: Settings) -> Manifest:
    """The manifest of the joined folder, whose fat wheel is `fat`."""
    manifests = list(shards.manifests.values())
    first = manifests[0]
    every_cell = all_cells(settings.matrix)
    names = [cell.name for cell in every_cell]
    cells = shards.cells
    tools = join_tools(manifests)
    artefacts = {
        artefact.path: artefact
        for folder in shards.manifests
        for artefact in shards.artefacts_of(folder)
    }
    joined = describe([fat_file(fat, shards.wheels)], settings.dist)
    binaries: dict[str, Binary] = {}
    for name, cell in cells.items():
        if cell.packed:
            own = shards.manifests[shards.origin[name]].binaries
            binaries |= {file: own[file] for file in cell.binaries if file in own}
    hosts: dict[str, HostFacts] = {}
    facts: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        hosts |= manifest.hosts
        for step, own_facts in manifest.facts.items():
            facts[step] = {**facts.get(step, {}), **own_facts}
    return Manifest(
        package=first.package,
        version=first.version,
        commit=first.commit,
        clean=all(manifest.clean for manifest in manifests),
        sources=first.sources,
        source_date=first.source_date,
        base_channel=_base_channels(manifests),
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=max(manifest.seconds for manifest in manifests),
        total=len(names),
        missing=missing(names, cells, joined),
        optional=[cell.name for cell in every_cell if cell.optional],
        cells=cells,
        tools=tools,
        binaries=dict(sorted(binaries.items())),
        artefacts=in_order([*artefacts.values(), *joined]),
        facts=facts,
        hosts=hosts,
    )


def join_tools(manifests: Sequence[Manifest]) -> dict[str, ToolEntry]:
    """The tools of all shards; of a tool, the entry of the shard that came furthest counts."""
    joined: dict[str, ToolEntry] = {}
    for manifest in manifests:
        for name, entry in manifest.tools.items():
            other = joined.setdefault(name, entry)
            if RANK[entry.state] < RANK[other.state]:
                joined[name] = entry
    return joined


def _base_channels(manifests: Sequence[Manifest]) -> str | None:
    """The base channels of all shards; None if one of them used a bootstrap channel."""
    channels = {manifest.base_channel for manifest in manifests}
    if None in channels:
        return None
    return ", ".join(sorted(map(str, channels)))


def _publish(folder: Path, shards: Shards, log: Log) -> None:
    """Copies the artefacts of a shard, and the logs of its cells and tools."""
    settings = log.settings
    cells, tools = shards.entries_of(folder), shards.manifests[folder].tools
    names = [artefact.path for artefact in shards.artefacts_of(folder)]
    names += [cell.log for cell in cells.values() if cell.log]
    names += [tool.log for tool in tools.values() if tool.log]
    for path in (folder / name for name in names):
        if path.suffix == ".conda":
            index_package(log, path, settings.channel)
        elif path.is_file():
            publish(path, settings.dist / path.relative_to(folder))
