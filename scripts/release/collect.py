"""Gathers what the tasks of a run made and found into the manifest."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from lltm_conda.builder.sources import source_date
from lltm_conda.compat.binary import read_binary
from lltm_conda.compat.driver_probe import probe_devices
from release import BUILD, DIST, REPO, manifest
from release.cells import Cell
from release.host import Host
from release.manifest import Artefact, Binary, CellEntry, HostFacts, Manifest, Run
from release.paths import CELL_LOGS
from release.progress import cell_state
from release.provenance import commit, is_clean, version
from release.store import digest
from release.tasks import Outcome, Status, Task
from release.wheels import read_wheel

STATES: dict[Status, manifest.State] = {
    Status.DONE: "done",
    Status.REUSED: "done",
    Status.SKIPPED: "partial",
    Status.FAILED: "failed",
}
GOOD = (Status.DONE, Status.REUSED)
NO_GPU = "its CUDA kernels were compiled and judged, not run: no run of it saw a GPU"
SMOKE = BUILD / "smoke"
FACTS = ("lltm", "torch", "python", "devices", "variant", "binaries", "openmp", "gradcheck")


@dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Attributes:
        tasks, outcomes: what was to be done, and how it went.
        cells: the cells it was for.
        skipped: selected cells that this machine cannot build, and why.
        all_cells: every cell of the matrix.
        sources: the identity of what was built.
        channel: the base conda channel, None for the bootstrap channel.
        shard: `2/8`, or None.
        kept: cells of an earlier run that are still good, and its manifest.
        seconds: how long it took.
    """

    tasks: Sequence[Task]
    outcomes: Mapping[str, Outcome]
    cells: Sequence[Cell]
    skipped: Mapping[str, str]
    all_cells: Sequence[Cell]
    sources: str
    channel: str | None
    shard: str | None
    kept: Mapping[str, CellEntry]
    previous: Manifest | None
    seconds: float


def collect(run: Finished, host: Host) -> Manifest:
    """The manifest of a run, with what it kept of the one before."""
    facts = host_facts(host)
    key = host_key(facts)
    cells = _still_packed(run)
    for cell in run.cells:
        cells[cell.name] = _cell(cell, run, key)
    for name, reason in run.skipped.items():
        torch = next(c.torch.release for c in run.all_cells if c.name == name)
        cells.setdefault(name, CellEntry(state="skipped", reason=reason, torch=torch, host=key))
    order = [cell.name for cell in run.all_cells]
    cells = {name: cells[name] for name in order if name in cells}
    old = run.previous
    binaries = {**_kept_binaries(run), **_binaries(run)}
    hosts = {key: facts}
    if old is not None:
        used = {cell.host for cell in cells.values()}
        hosts.update({name: found for name, found in old.hosts.items() if name in used})
    return Manifest(
        package="lltm",
        version=version(),
        commit=commit(),
        clean=is_clean(),
        sources=run.sources,
        source_date=source_date(os.environ),
        base_channel=run.channel,
        shard=run.shard,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=round(run.seconds, 1),
        total=len(run.all_cells),
        missing=missing(order, cells),
        cells=cells,
        binaries=dict(sorted(binaries.items())),
        artefacts=artefacts(cells, _outputs(run, "sdist"), _outputs(run, "fat-wheel")),
        hosts=hosts,
    )


def _still_packed(run: Finished) -> dict[str, CellEntry]:
    """What was kept of an earlier run and is, with the same binaries, in the new fat wheel."""
    fat = {
        n: b for path in _outputs(run, "fat-wheel") for n, b in read_wheel(path).binaries.items()
    }
    if not fat:
        return dict(run.kept)
    return {
        name: cell
        for name, cell in run.kept.items()
        if all(fat.get(n) == b for n, b in read_wheel(DIST / str(cell.wheel)).binaries.items())
    }


def missing(order: Sequence[str], cells: Mapping[str, CellEntry]) -> dict[str, str]:
    """The cells of the matrix that the fat wheel lacks, and why."""
    found = {}
    for name in order:
        cell = cells.get(name)
        if cell is None:
            found[name] = "not selected"
        elif not cell.packed:
            found[name] = cell.reason or "not built"
    return found


def artefacts(
    cells: Mapping[str, CellEntry], sdist: Sequence[Path], fat: Sequence[Path]
) -> list[Artefact]:
    """Everything in dist/ that is to be handed out."""
    packed = sorted(name for name, cell in cells.items() if cell.packed)
    found = [_artefact(path, "sdist", []) for path in sdist]
    found += [_artefact(path, "fat", packed) for path in fat]
    for name, cell in cells.items():
        if cell.wheel:
            found.append(_artefact(DIST / cell.wheel, "thin", [name]))
        if cell.conda and (DIST / cell.conda).is_file():
            found.append(_artefact(DIST / cell.conda, "conda", [name]))
    return found


def _artefact(path: Path, kind: manifest.Kind, cells: list[str]) -> Artefact:
    name = path.relative_to(DIST).as_posix()
    size = path.stat().st_size
    return Artefact(path=name, kind=kind, sha256=digest(path), size=size, cells=cells)


def _outputs(run: Finished, task: str) -> tuple[Path, ...]:
    outcome = run.outcomes.get(task)
    return outcome.outputs if outcome else ()


def _cell(cell: Cell, run: Finished, host: str) -> CellEntry:
    own = [task for task in run.tasks if cell.name in task.groups]
    outcomes = [run.outcomes[task.name] for task in own]
    state = STATES[cell_state(cell.name, own, dict(run.outcomes))]
    wheels = [p.relative_to(DIST).as_posix() for p in _outputs(run, f"wheel/{cell.name}")]
    conda = [p.relative_to(DIST).as_posix() for p in _outputs(run, f"conda/{cell.name}")]
    if state == "partial" and not wheels:
        state = "skipped"
    log = CELL_LOGS / f"{cell.name}.log"
    return CellEntry(
        state=state,
        reason="\n".join(f"{o.task}: {o.reason}" for o in causes(outcomes)),
        torch=cell.torch.release,
        binaries=[f"glue-{cell.glue}.so", *(f"kernels-{name}.so" for name in cell.kernels)],
        wheel=wheels[0] if wheels else None,
        conda=conda[0] if conda else None,
        runs=list(_runs(cell, run)),
        steps={o.task: round(o.took, 2) for o in outcomes if o.status in GOOD},
        log=log.relative_to(DIST).as_posix() if log.exists() else None,
        host=host,
    )


def causes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """What failed or could not be done by itself, not for want of what it needs."""
    bad = [o for o in outcomes if o.status in (Status.FAILED, Status.SKIPPED)]
    return [o for o in bad if not o.blocked] or bad[:1]


def _runs(cell: Cell, run: Finished) -> Iterator[Run]:
    """What was installed and run for the cell's sake: kind, task and the smoke test's report."""
    gpu = False
    kinds = [("venv", f"venv/{cell.name}", SMOKE / f"{cell.name}-venv.json")]
    kinds.append(("fat", f"fat-run/{cell.glue}", SMOKE / f"{cell.glue}-fat.json"))
    kinds.append(("conda", f"prefix/{cell.name}", SMOKE / f"{cell.name}-conda.json"))
    for kind, task, report in kinds:
        outcome = run.outcomes.get(task)
        if outcome is None:
            continue
        note = _read(BUILD / "conda" / f"{cell.name}.json") if kind == "conda" else {}
        if outcome.status in (Status.FAILED, Status.SKIPPED):
            yield Run(kind=kind, ran=False, why_not=outcome.reason)
        elif note and not note.get("installed", True):
            yield Run(kind=kind, ran=False, why_not=str(note.get("why", "")))
        elif not (found := _read(report)):
            yield Run(kind=kind, ran=False, why_not=f"{report}: its report is lost; delete build")
        else:
            facts = {name: found[name] for name in FACTS if name in found}
            facts |= {name: note[name] for name in ("pytorch",) if name in note}
            counts = {"comparisons": len(found["comparisons"]), "failed": found["failed"]}
            gpu = gpu or "cuda" in found.get("devices", [])
            yield Run(kind=kind, ran=True, facts={**facts, **counts})
    if cell.cuda_major is not None and not gpu:
        yield Run(kind="gpu", ran=False, why_not=NO_GPU)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _binaries(run: Finished) -> dict[str, Binary]:
    kinds = ("glue", "kernels")
    tasks = [task.name for task in run.tasks if task.name.split("/")[0] in kinds]
    paths = [path for task in tasks for path in _outputs(run, task)]
    return {path.name: describe(path) for path in paths}


def describe(path: Path) -> Binary:
    """What the manifest says of a shared object."""
    found = read_binary(path)
    return Binary(
        sha256=digest(path),
        size=found.size,
        record=json.loads(found.record.text) if found.record else {},
        needed=list(found.needed),
        versions={name: ".".join(map(str, v)) for name, v in found.floors.items()},
    )


def _kept_binaries(run: Finished) -> dict[str, Binary]:
    wanted = {name for cell in run.kept.values() for name in cell.binaries}
    old = run.previous.binaries if run.previous else {}
    return {name: binary for name, binary in old.items() if name in wanted}


def host_facts(host: Host) -> HostFacts:
    """The machine in words, without its name."""
    libc = " ".join(platform.libc_ver())
    system = f"{platform.system()} {platform.release()} {platform.machine()}, {libc}"
    gpus = [device.name for device in probe_devices()] if host.driver else []
    return HostFacts(
        system=system,
        python=host.python_minor,
        compiler=str(host.compiler),
        processors=os.cpu_count() or 1,
        gpus=gpus,
        tools=tool_versions(),
    )


def host_key(facts: HostFacts) -> str:
    """A short name for a machine, equal for equal facts."""
    import hashlib

    return hashlib.sha256(facts.model_dump_json().encode()).hexdigest()[:8]


def tool_versions() -> dict[str, str]:
    """The versions of what the release tool runs on."""
    text = (REPO / "scripts" / "release" / "requirements.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {}
    for name in (Requirement(line).name for line in lines):
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            continue
    return found
