"""`--verify full` for another platform than the first: each torch is run once, on one Python.

A run under qemu costs minutes. Each cell has run out of its thin wheel, beside the torch that it is
built with; the fat wheel is run beside the other torches that stable glue serves. Stored beside the
results of the first platform.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from release import BUILD, DIST, FOREIGN, PLATFORM, REPO, SMOKE, ReleaseError, emulation, evidence
from release.cells import Cell, all_cells
from release.evidence import Environment, Evidence
from release.interpreters import interpreters
from release.manifest import Manifest
from release.schema import Matrix
from release.store import digest
from release.verify_one import Target, computed
from release.verify_torches import tried
from release.wheels import commits, read_wheel


def verify_cells(manifest: Manifest, matrix: Matrix, console: Console, jobs: int = 1) -> int:
    """Stores what is known of each torch, and shows it; returns the exit code."""
    assert manifest.fat is not None
    wheel = DIST / manifest.fat.path
    rows = {row.torch: row for row in reversed([*ran(manifest, matrix)])}
    if not rows:
        raise ReleaseError("no cell has run, so nothing is known; the run above says why")
    wanted = others(rows, matrix)
    more = tried(wheel, wanted, console, jobs) if wanted else {}
    rows |= {target.torch: seen for target, seen in more.items() if seen}
    how = next(iter(manifest.hosts.values())).system.partition("; ")[2] or "native"
    for minor in matrix.minors():
        seen = rows.get(minor)
        console.print(f"torch {minor}: {seen.state if seen else 'untried'}", highlight=False)
    found = [rows[minor] for minor in matrix.minors() if minor in rows]
    path = evidence.results(PLATFORM)
    stored = Evidence(
        wheel=wheel.name,
        sha256=digest(wheel),
        binaries=sorted(Path(name).name for name in read_wheel(wheel).binaries),
        commit=" ".join(commits(read_wheel(wheel))),
        smoke=digest(SMOKE),
        date=max(row.date for row in found),
        machine=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}; {how}",
        command=f"scripts/build_all.sh '*-{PLATFORM.removeprefix('linux-')}' --verify full",
        environments=found,
    )
    evidence.save(stored, path)
    console.print(f"stored in {path.relative_to(REPO)}; now run:")
    console.print("scripts/build_all.sh --write-generated")
    return 0 if all(row and row.state == "ran" for row in [*found, *more.values()]) else 1


def others(rows: Mapping[str, Environment], matrix: Matrix) -> list[Target]:
    """What is still to be tried on the Python of `rows`: torches without glue of their own."""
    python = next(iter(rows.values())).python
    interpreter = str(emulation.PYTHON) if FOREIGN else next(interpreters(python), None)
    return [
        Target(minor, torch.release, python, interpreter)
        for minor, torch in matrix.torch.items()
        if minor not in rows and not torch.aten and python in torch.pythons
    ]


def ran(manifest: Manifest, matrix: Matrix) -> Iterator[Environment]:
    """The cells that were installed and run, in the order of the matrix."""
    for cell in all_cells(matrix):
        entry = manifest.cells.get(cell.name)
        for run in entry.runs if entry else []:
            if run.kind == "venv" and run.ran:
                yield _ran(cell, str(run.facts["variant"]), int(run.facts["failed"]), manifest)


def _ran(cell: Cell, variant: str, failed: int, manifest: Manifest) -> Environment:
    facts = computed(BUILD / "smoke" / f"{cell.name}-venv.json")
    return Environment(
        torch=".".join(facts["torch_version"].split(".")[:2]),
        python=".".join(facts["python_version"].split(".")[:2]),
        state="failed" if failed or not facts["gradcheck"] else "ran",
        variant=variant,
        accepted=sorted(manifest.cells[cell.name].binaries),
        date=manifest.made,
        **facts,
    )
