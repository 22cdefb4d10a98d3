"""Joins what several machines built: their wheels into one fat wheel, their manifests into one."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from release import DIST, ReleaseError
from release.cells import all_cells, required
from release.collect import artefacts, missing
from release.conda_steps import index_package
from release.manifest import Artefact, Binary, Manifest, ManifestError, parse, wrong_files
from release.pack_steps import make_fat_wheel
from release.paths import CHANNEL, LOGS, publish, replace_wheel
from release.run import finish, only_run
from release.schema import Matrix
from release.shell import Log
from release.wheels import read_wheel

# The fields that must be equal in all shards.
SAME = ("package", "version", "commit", "sources", "total")
RANK = {"done": 0, "partial": 1, "failed": 2, "skipped": 3}


def merge(folders: Sequence[Path], matrix: Matrix, console: Console) -> int:
    shards = {folder: _checked(folder) for folder in folders}
    _same_sources(shards)
    order = [cell.name for cell in all_cells(matrix)]
    # For every cell, the folder of the shard that completed most of its steps.
    origin: dict[str, Path] = {}
    for name in order:
        if having := [folder for folder, found in shards.items() if name in found.cells]:
            origin[name] = min(having, key=lambda f: RANK[shards[f].cells[name].state])
    cells = {name: shards[folder].cells[name] for name, folder in origin.items()}
    with only_run(console):
        packed = {name: cell.wheel for name, cell in cells.items() if cell.packed}
        wheels = {name: origin[name] / str(wheel) for name, wheel in packed.items()}
        if not wheels:
            raise ReleaseError("no shard built a variant to merge; their logs say why")
        with Log(LOGS / "merge.log") as log:
            fat = make_fat_wheel(log, wheels, required(matrix))
            binaries = _binaries(shards, fat)
            for folder, found in shards.items():
                _publish(folder, found, origin, log)
            final = replace_wheel(fat, DIST, any_version=True)
        every = [*shards.values()]
        sdists = {DIST / a.path for m in every for a in m.artefacts if a.kind == "sdist"}
        channels = {found.base_channel for found in every}
        joined = {
            "clean": all(found.clean for found in every),
            "base_channel": None if None in channels else ", ".join(sorted(map(str, channels))),
            "shard": None,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": max(found.seconds for found in every),
            "missing": missing(order, cells),
            "cells": cells,
            "binaries": binaries,
            "artefacts": artefacts(cells, sorted(sdists), [final]),
            "hosts": {name: host for found in every for name, host in found.hosts.items()},
        }
        made = every[0].model_copy(update=joined)
        finish(made)
    bad = [name for name, cell in cells.items() if cell.state == "failed"]
    for name in bad:
        console.print(f"FAILED {name}: {cells[name].reason}", markup=False, soft_wrap=True)
    text = f"merged {len(cells)} cells of {len(shards)} folders into dist/{final.name}{made.lacks}"
    console.print(text, markup=False, soft_wrap=True)
    return 1 if bad else 0


def _checked(folder: Path) -> Manifest:
    found = parse(folder / "manifest.json")
    if found.changed:
        raise ManifestError(f"{folder}: {found.changed}; build the shard again")
    if wrong := wrong_files(found.artefacts, folder):
        text = f"{folder}: {wrong[0]}"
        raise ManifestError(f"{text}; copy the whole folder again, or build the shard again")
    return found


def _same_sources(shards: Mapping[Path, Manifest]) -> None:
    (first, wanted), *rest = shards.items()
    for folder, found in rest:
        for name in SAME:
            if getattr(found, name) != getattr(wanted, name):
                raise ReleaseError(
                    f"{folder}: {name} is {getattr(found, name)}, {first} has "
                    f"{getattr(wanted, name)}; build every shard from the same commit"
                )


def _publish(folder: Path, found: Manifest, origin: Mapping[str, Path], log: Log) -> None:
    """Copies the source distribution, and the artefacts and logs of this folder's cells."""

    def wanted(artefact: Artefact) -> bool:
        ours = {origin.get(cell) for cell in artefact.cells} == {folder}
        return artefact.kind == "sdist" or (artefact.kind != "fat" and ours)

    names = [artefact.path for artefact in found.artefacts if wanted(artefact)]
    names += [c.log for n, c in found.cells.items() if c.log and origin.get(n) == folder]
    for path in (folder / name for name in names):
        if path.suffix == ".conda":
            index_package(log, path, CHANNEL)
        elif path.is_file():
            publish(path, DIST / path.relative_to(folder))


def _binaries(shards: Mapping[Path, Manifest], fat: Path) -> dict[str, Binary]:
    """The entries of the packed binaries, each from a shard that made the same bytes."""
    found: dict[str, Binary] = {}
    for path, data in sorted(read_wheel(fat).binaries.items()):
        name, sha256 = Path(path).name, hashlib.sha256(data).hexdigest()
        for entry in (m.binaries[name] for m in shards.values() if name in m.binaries):
            if entry.sha256 == sha256:
                found[name] = entry
        if name not in found:
            text = f"{name}: no manifest has the hash of the packed binary ({sha256})"
            raise ManifestError(f"{text}; build the shards again")
    return found
