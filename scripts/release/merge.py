"""Joins what several machines built: their wheels into one fat wheel, their manifests into one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from release import DIST, ReleaseError
from release.cells import all_cells
from release.collect import artefacts, missing
from release.conda_steps import index_package
from release.fat_steps import forget_others, make_fat_wheel
from release.manifest import Artefact, CellEntry, Manifest, ManifestError, parse, wrong_files
from release.paths import CHANNEL, LOGS, TEMPORARY, fresh, publish
from release.schema import Matrix
from release.shell import Log

# What must be equal for artefacts to belong together.
SAME = ("package", "version", "commit", "sources", "total")
RANK = {"done": 0, "partial": 1, "failed": 2, "skipped": 3}


def merge(folders: Sequence[Path], matrix: Matrix, console: Console) -> int:
    """Merges the dist folders of shards into this checkout's; the exit code.

    Raises:
        ReleaseError: a folder has no whole manifest, is of other sources, or holds a file that is
            not what its manifest says.
    """
    from release.run import finish, only_run

    shards = {folder: _checked(folder) for folder in folders}
    _same_sources(shards)
    order = [cell.name for cell in all_cells(matrix)]
    cells, origin = _best(shards, order)
    with only_run(console):
        stage = fresh(TEMPORARY / "merge")
        taken = [a for f, m in shards.items() for a in _wanted(m, f, origin)]
        for folder, found in shards.items():
            _stage(folder, _wanted(found, folder, origin), found, origin, stage)
        log = Log(LOGS / "merge.log")
        wheels = {name: stage / str(cell.wheel) for name, cell in cells.items() if cell.packed}
        if not wheels:
            raise ReleaseError(
                "no shard built a variant: there is nothing to merge; see their logs"
            )
        with log:
            fat = make_fat_wheel(log, wheels, len(order))
            final = _publish(stage, fat, log)
        made = _manifest(shards, cells, order, _sdists(taken), final)
        finish(made)
        shutil.rmtree(stage, ignore_errors=True)
    bad = [name for name, cell in cells.items() if cell.state == "failed"]
    for name in bad:
        console.print(f"FAILED {name}: {cells[name].reason}", markup=False, soft_wrap=True)
    lacks = f", which lacks {', '.join(made.missing)}" if made.partial else ""
    text = f"merged {len(cells)} cells of {len(shards)} folders into dist/{final.name}{lacks}"
    console.print(text, markup=False, soft_wrap=True)
    return 1 if bad else 0


def _checked(folder: Path) -> Manifest:
    found = parse(folder / "manifest.json")
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


def _best(
    shards: Mapping[Path, Manifest], order: Sequence[str]
) -> tuple[dict[str, CellEntry], dict[str, Path]]:
    """For every cell the entry that came furthest, and the folder that it is from."""
    cells: dict[str, CellEntry] = {}
    origin: dict[str, Path] = {}
    for name in order:
        found = [
            (RANK[m.cells[name].state], i) for i, m in enumerate(shards.values()) if name in m.cells
        ]
        if found:
            folder = list(shards)[min(found)[1]]
            cells[name], origin[name] = shards[folder].cells[name], folder
    return cells, origin


def _wanted(found: Manifest, folder: Path, origin: Mapping[str, Path]) -> list[Artefact]:
    """What is taken from a folder: the source distribution, and the artefacts of its cells."""
    return [
        a
        for a in found.artefacts
        if a.kind == "sdist" or (a.kind != "fat" and {origin.get(c) for c in a.cells} == {folder})
    ]


def _stage(
    folder: Path,
    taken: Sequence[Artefact],
    found: Manifest,
    origin: Mapping[str, Path],
    stage: Path,
) -> None:
    logs = [c.log for n, c in found.cells.items() if c.log and origin.get(n) == folder]
    for name in [*(artefact.path for artefact in taken), *logs]:
        target = stage / name
        if (folder / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, target)


def _publish(stage: Path, fat: Path, log: Log) -> Path:
    """Puts everything into dist/, packages into the index of its channel."""
    for path in sorted(p for p in stage.rglob("*") if p.is_file()):
        if path.suffix != ".conda":
            publish(path, DIST / path.relative_to(stage))
            continue
        index_package(log, path, CHANNEL)
    final = publish(fat, DIST / fat.name)
    forget_others(final)
    return final


def _sdists(taken: Sequence[Artefact]) -> list[Path]:
    return sorted({DIST / a.path for a in taken if a.kind == "sdist"})


def _manifest(
    shards: Mapping[Path, Manifest],
    cells: Mapping[str, CellEntry],
    order: Sequence[str],
    sdists: Sequence[Path],
    fat: Path,
) -> Manifest:
    first = next(iter(shards.values()))
    channels = {found.base_channel for found in shards.values()}
    return first.model_copy(
        update={
            "clean": all(found.clean for found in shards.values()),
            "base_channel": None if None in channels else ", ".join(sorted(map(str, channels))),
            "shard": None,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": max(found.seconds for found in shards.values()),
            "missing": missing(order, cells),
            "cells": dict(cells),
            "binaries": {n: b for m in shards.values() for n, b in sorted(m.binaries.items())},
            "artefacts": artefacts(cells, sdists, [fat]),
            "hosts": {n: h for m in shards.values() for n, h in m.hosts.items()},
        }
    )
